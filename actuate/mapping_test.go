package actuate

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"autotune/actuate/netdev"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

func readSample(t *testing.T, path string, v any) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// TestQueueCountSamples goes through the field's listings of a virtio_net
// device with 1, 4 and 8 queues.
func TestQueueCountSamples(t *testing.T) {
	for _, count := range []int{1, 4, 8} {
		t.Run(fmt.Sprint(count), func(t *testing.T) {
			var sample []struct {
				ID      int     `json:"id"`
				Ifindex int     `json:"ifindex"`
				NAPIID  *uint32 `json:"napi-id"`
				Type    string  `json:"type"`
			}
			readSample(t, fmt.Sprintf("queue_count/virtio_%dq_queues.json", count), &sample)
			var queues []netdev.Queue
			var napis []netdev.NAPI
			for _, q := range sample {
				kind := netdev.QueueRx
				if q.Type == "tx" {
					kind = netdev.QueueTx
				}
				queues = append(queues, netdev.Queue{ID: q.ID, Ifindex: q.Ifindex, Type: kind, NAPIID: q.NAPIID})
				if q.NAPIID != nil {
					napis = append(napis, netdev.NAPI{ID: *q.NAPIID, Ifindex: q.Ifindex})
				}
			}
			for _, order := range []string{"as listed", "reversed"} {
				if order == "reversed" {
					slices.Reverse(queues)
					slices.Reverse(napis)
				}
				got, n := mapQueues(queues, napis)
				if want := (counts{receive: count, untunable: count}); n != want {
					t.Errorf("%s: %+v, want %+v: the transmit queues have no ID", order, n, want)
				}
				if len(got) != count {
					t.Fatalf("%s: %d queues, want %d", order, len(got), count)
				}
				for i, m := range got {
					if m.index != i || m.napi.ID != uint32(8193+i) || m.mapping != model.MappingDriver {
						t.Errorf("%s: queue %d is %+v", order, i, m)
					}
				}
			}
		})
	}
}

func TestMapQueues(t *testing.T) {
	id := func(v uint32) *uint32 { return &v }
	type pair struct {
		Index int
		ID    uint32
	}
	for _, tt := range []struct {
		name      string
		queues    []netdev.Queue
		napis     []netdev.NAPI
		want      []pair
		mapping   model.Mapping
		untunable int
	}{
		{
			name:   "a driver that reports nothing is mapped in ascending order",
			queues: []netdev.Queue{{ID: 0}, {ID: 1}, {ID: 0, Type: netdev.QueueTx}},
			napis:  []netdev.NAPI{{ID: 90}, {ID: 89}},
			want:   []pair{{0, 89}, {1, 90}}, mapping: model.MappingPosition,
		},
		{
			name:   "instances beyond the receive queues are not tuned",
			queues: []netdev.Queue{{ID: 0}},
			napis:  []netdev.NAPI{{ID: 90}, {ID: 89}},
			want:   []pair{{0, 89}}, mapping: model.MappingPosition, untunable: 1,
		},
		{
			name: "an instance that serves two queues is tuned once",
			queues: []netdev.Queue{
				{ID: 0, NAPIID: id(89)}, {ID: 1, NAPIID: id(89)}, {ID: 0, Type: netdev.QueueTx, NAPIID: id(89)},
			},
			napis: []netdev.NAPI{{ID: 89}},
			want:  []pair{{0, 89}}, mapping: model.MappingDriver,
		},
		{
			name: "an instance for transmission only is not tuned",
			queues: []netdev.Queue{
				{ID: 0, NAPIID: id(89)}, {ID: 0, Type: netdev.QueueTx, NAPIID: id(90)},
			},
			napis: []netdev.NAPI{{ID: 89}, {ID: 90}},
			want:  []pair{{0, 89}}, mapping: model.MappingDriver,
		},
		{name: "a device that is down has none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, n := mapQueues(tt.queues, tt.napis)
			var pairs []pair
			for _, m := range got {
				pairs = append(pairs, pair{m.index, m.napi.ID})
				if m.mapping != tt.mapping {
					t.Errorf("mapping %q, want %q", m.mapping, tt.mapping)
				}
			}
			if diff := cmp.Diff(tt.want, pairs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if n.untunable != tt.untunable {
				t.Errorf("%d untunable, want %d", n.untunable, tt.untunable)
			}
		})
	}
}
