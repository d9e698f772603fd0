package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

var queue0 = model.Queue{Netns: 1, Ifindex: 2}

func set(flush time.Duration) model.Config {
	s := model.Settings{GROFlushTimeout: flush}
	if flush > 0 {
		s.DeferHardIRQs = 100
	}
	return model.Config{queue0: s}
}

func pointer[T any](v T) *T { return &v }

func TestChanges(t *testing.T) {
	const us = time.Microsecond
	one := func(s model.Settings) model.Config { return model.Config{queue0: s} }
	other := model.Queue{Netns: 1, Ifindex: 2, Index: 1}
	tests := []struct {
		name          string
		before, after model.Config
		up, down      int
	}{
		{"nothing", set(20 * us), set(20 * us), 0, 0},
		{"a longer timeout", set(20 * us), set(24 * us), 1, 0},
		{"a shorter timeout", set(24 * us), set(20 * us), 0, 1},
		{"to plain interrupts", set(20 * us), set(0), 0, 1},
		{"a timeout without deferral changes nothing", set(0), one(model.Settings{GROFlushTimeout: 20 * us}), 0, 0},
		{"deferral without a timeout changes nothing", set(0), one(model.Settings{DeferHardIRQs: 100}), 0, 0},
		{"more deferral at the same timeout", set(20 * us), one(model.Settings{DeferHardIRQs: 200, GROFlushTimeout: 20 * us}), 1, 0},
		{
			"suspension goes beyond deferral", set(200 * us),
			one(model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 20 * us, IRQSuspendTimeout: time.Millisecond}), 1, 0,
		},
		{
			"two queues, two ways",
			model.Config{queue0: set(20 * us)[queue0], other: set(20 * us)[queue0]},
			model.Config{queue0: set(0)[queue0], other: set(40 * us)[queue0]}, 1, 1,
		},
		{"not read back before", model.Config{}, set(20 * us), 0, 0},
		{"not read back after", set(20 * us), model.Config{}, 0, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			up, down := changes(tt.before, tt.after)
			if diff := cmp.Diff([]int{tt.up, tt.down}, []int{up, down}); diff != "" {
				t.Errorf("up, down (-want +got):\n%s", diff)
			}
		})
	}
}

// sample covers the window of 250 ms that ends at the given one.
func sample(window int, active model.Config) model.Sample {
	const span = 250 * time.Millisecond
	return model.Sample{
		At: time.Duration(window) * span, Span: span, Active: active, Lost: 1,
		Queues: []model.QueueSample{{
			Queue:   queue0,
			Softirq: model.PollCounts{Polls: 1}, Thread: model.PollCounts{Polls: 10}, Busy: model.PollCounts{Polls: 100},
			Timer: &model.TimerCounts{Arms: 5, Fires: 3},
		}},
	}
}

func TestObservationIntoRow(t *testing.T) {
	const us = time.Microsecond
	var o observation
	o.found = set(0)
	// The first sample belongs to no phase, the next four to the one looked
	// at, the last to the one after it.
	for i, flush := range []time.Duration{20 * us, 40 * us, 40 * us, 0, 60 * us, 80 * us} {
		o.take(sample(i+1, set(flush)), nil)
	}
	var got Row
	o.into(&got, 250*time.Millisecond, 1250*time.Millisecond)
	want := Row{
		Observed:     time.Second,
		SoftirqPolls: pointer(uint64(4)), ThreadPolls: pointer(uint64(40)), ApplicationPolls: pointer(uint64(400)),
		TimerFires: pointer(uint64(12)), LostEvents: pointer(uint64(4)),
		// 20 to 40 came within the phase, then 40 to 0 and 0 to 60.
		Raised: 2, Lowered: 1,
		MeanFlush: pointer(35 * us),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if s, ok := o.settingsAt(600 * time.Millisecond); !ok || s.GROFlushTimeout != 40*us {
		t.Errorf("settings at 600 ms: %v, %v; want 40us", s, ok)
	}
	if s, ok := o.settings(); !ok || s.GROFlushTimeout != 80*us {
		t.Errorf("last settings: %v, %v; want 80us", s, ok)
	}
}

func TestObservationCountsAChangeBeforeTheFirstSample(t *testing.T) {
	o := observation{found: set(0)}
	o.take(sample(1, set(200*time.Microsecond)), nil)
	var row Row
	o.into(&row, 0, time.Second)
	if row.Raised != 1 || row.Lowered != 0 {
		t.Errorf("%d up, %d down; want 1 up", row.Raised, row.Lowered)
	}
}

func TestObservationWithoutSamplesLeavesAllUnknown(t *testing.T) {
	var o observation
	var row Row
	o.into(&row, 0, time.Second)
	if diff := cmp.Diff(Row{}, row); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, ok := o.settings(); ok {
		t.Error("settings are known without a sample")
	}
	if o.delayP90() != nil {
		t.Error("a delay is known without a sample")
	}
}

func TestObservationMergesDelays(t *testing.T) {
	var o observation
	for window, delay := range []time.Duration{100 * time.Microsecond, 300 * time.Microsecond} {
		s := sample(window+1, set(0))
		s.Latency = &model.Latency{Source: "server-side delay"}
		s.Latency.Histogram.Add(delay, 100)
		o.take(s, nil)
	}
	var row Row
	o.into(&row, 0, time.Second)
	const tolerance = 0.0625 // a bucket of the histogram
	for _, tt := range []struct {
		name string
		got  *time.Duration
		want time.Duration
	}{{"p50", row.DelayP50, 100 * time.Microsecond}, {"p90", row.DelayP90, 300 * time.Microsecond}, {"p90 of all", o.delayP90(), 300 * time.Microsecond}} {
		if tt.got == nil || float64(*tt.got) < float64(tt.want)*(1-2*tolerance) || float64(*tt.got) > float64(tt.want)*(1+2*tolerance) {
			t.Errorf("%s: got %v, want about %v", tt.name, tt.got, tt.want)
		}
	}
}
