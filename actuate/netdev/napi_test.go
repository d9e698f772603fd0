package netdev

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/cpu"
)

func readSamples(t testing.TB) map[string][]byte {
	t.Helper()
	data, err := os.ReadFile("testdata/napi_attrs_le.hex")
	if err != nil {
		t.Fatal(err)
	}
	samples := map[string][]byte{}
	lines := bufio.NewScanner(bytes.NewReader(data))
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if samples[name], err = hex.DecodeString(text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return samples
}

// TestFieldSamples decodes the field's byte samples, which are little-endian.
func TestFieldSamples(t *testing.T) {
	if cpu.IsBigEndian {
		t.Skip("the samples are of a little-endian machine")
	}
	samples := readSamples(t)
	for name, want := range map[string]NAPI{
		"gro_200us_4byte": {
			ID: 8193, Ifindex: 2, DeferHardIRQs: ptr(uint32(100)),
			GROFlushTimeout: ptr(200 * time.Microsecond), IRQSuspendTimeout: ptr(20 * time.Millisecond),
		},
		"gro_5s_8byte": {
			ID: 8193, Ifindex: 2, DeferHardIRQs: ptr(uint32(0)),
			GROFlushTimeout: ptr(5 * time.Second), IRQSuspendTimeout: ptr(time.Duration(0)),
		},
		"no_irq_no_pid_old_kernel_6_8": {ID: 8193, Ifindex: 2},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parseNAPI(samples[name])
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	t.Run("uint_bad_2byte", func(t *testing.T) {
		_, err := parseNAPI(samples["uint_bad_2byte"])
		var bad *AttributeError
		if !errors.As(err, &bad) || bad.Attribute != 6 || bad.Len != 2 {
			t.Errorf("error %v does not name attribute 6 and length 2", err)
		}
	})
	t.Run("unknown_attr_99", func(t *testing.T) {
		// Neither the unknown attribute nor the missing ifindex of this
		// sample may be taken for the other.
		_, err := parseNAPI(samples["unknown_attr_99"])
		var bad *AttributeError
		if errors.As(err, &bad) {
			t.Errorf("unknown attribute: %v", err)
		}
		withIfindex := append(attrs(attribute{attrNAPIIfindex, uint32(2)}), samples["unknown_attr_99"]...)
		got, err := parseNAPI(withIfindex)
		want := NAPI{ID: 8193, Ifindex: 2, GROFlushTimeout: ptr(time.Duration(0))}
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func TestAttributeNumbersAreTheFieldSamples(t *testing.T) {
	data, err := os.ReadFile("testdata/napi_attrs_le.expected.json")
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		IDs map[string]uint16 `json:"attr_ids"`
	}
	if err := json.Unmarshal(data, &expected); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint16{}
	for number := range uint16(64) {
		if name := napiAttrName(number); name != "" {
			got[name] = number
		}
	}
	if diff := cmp.Diff(expected.IDs, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestTimeoutsBeyondDurationSaturate(t *testing.T) {
	n, err := parseNAPI(attrs(attribute{attrNAPIIfindex, uint32(2)}, attribute{attrNAPIID, uint32(1)},
		attribute{attrNAPIGROFlushTimeout, ^uint64(0)}, attribute{attrNAPIIRQSuspendTimeout, uint64(MaxTimeout)}))
	if err != nil {
		t.Fatal(err)
	}
	if *n.GROFlushTimeout != MaxTimeout || *n.IRQSuspendTimeout != MaxTimeout {
		t.Errorf("got %v and %v, want %v", *n.GROFlushTimeout, *n.IRQSuspendTimeout, MaxTimeout)
	}
}

func FuzzParseNAPI(f *testing.F) {
	for _, sample := range readSamples(f) {
		f.Add(sample)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		n, err := parseNAPI(data)
		if err != nil {
			if diff := cmp.Diff(NAPI{}, n); diff != "" {
				t.Errorf("a value beside an error:\n%s", diff)
			}
			return
		}
		if s, complete := n.Settings(); complete && (s.GROFlushTimeout < 0 || s.IRQSuspendTimeout < 0) {
			t.Errorf("negative timeout: %v", s)
		}
		// What was decoded, encoded as an update, decodes to the same.
		if s, complete := n.Settings(); complete {
			u := NAPIUpdate{DeferHardIRQs: &s.DeferHardIRQs, GROFlushTimeout: &s.GROFlushTimeout, IRQSuspendTimeout: &s.IRQSuspendTimeout}
			again, _, err := u.encode(n.ID)
			if err != nil {
				t.Fatal(err)
			}
			back, err := parseNAPI(append(attrs(attribute{attrNAPIIfindex, uint32(n.Ifindex)}), again...))
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := back.Settings(); got != s {
				t.Errorf("encoded %v, decoded %v", s, got)
			}
		}
	})
}

func FuzzParseQueue(f *testing.F) {
	f.Add(attrs(attribute{attrQueueID, uint32(0)}, attribute{attrQueueIfindex, uint32(2)}, attribute{attrQueueType, uint32(0)}, attribute{attrQueueNAPIID, uint32(8193)}))
	f.Fuzz(func(t *testing.T, data []byte) {
		if q, err := parseQueue(data); err != nil && q != (Queue{}) {
			t.Errorf("a value beside an error: %v", q)
		}
	})
}
