package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

func TestStallsAreToldAtOnceAndThenOnceAMinute(t *testing.T) {
	queue := model.Queue{Ifindex: 2}
	window := func(at time.Duration, started, expired uint64) *model.Sample {
		return &model.Sample{
			At: at, Queues: []model.QueueSample{{Queue: queue, NAPIID: 70, Suspension: &model.Suspension{Started: started, Expired: expired}}},
			Active: model.Config{queue: {IRQSuspendTimeout: 20 * time.Millisecond}},
			Apps: []model.AppSample{
				{PID: 7, Comm: "server", Contexts: []model.EpollContext{{FD: 5, NAPIIDs: []uint32{70}}}},
				{PID: 8, Comm: "other", Contexts: []model.EpollContext{{FD: 5, NAPIIDs: []uint32{71}}}},
			},
		}
	}
	windows := []*model.Sample{
		window(1*time.Second, 90, 0),
		window(2*time.Second, 9, 1),
		window(3*time.Second, 10, 5),
		window(50*time.Second, 0, 0),
		window(62*time.Second, 1, 0),
		window(200*time.Second, 100, 0),
	}
	var out, errs bytes.Buffer
	name := func(model.Queue) string { return "eth0" }
	asJSON := &stalls{asJSON: true, out: &out, name: name}
	asText := &stalls{err: &errs, name: name}
	for _, w := range windows {
		asJSON.window(w)
		asText.window(w)
	}
	var got []stallLine
	for line := range strings.Lines(out.String()) {
		var l stallLine
		if err := json.Unmarshal([]byte(line), &l); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		got = append(got, l)
	}
	who := []string{"server (pid 7)"}
	want := []stallLine{
		{"stall", queue, "eth0", 99, 1, 20 * time.Millisecond, who},
		{"stall", queue, "eth0", 11, 5, 20 * time.Millisecond, who},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("warnings (-want +got):\n%s", diff)
	}
	if text := errs.String(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "eth0 queue 0: 1 of 99 suspensions") || !strings.Contains(text, "server (pid 7) stalled") {
		t.Errorf("it says\n%s", text)
	}
}
