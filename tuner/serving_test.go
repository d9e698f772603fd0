package tuner

import (
	"testing"
	"time"

	"autotune/model"
)

// What polled a queue in the window tells where it is served, not what did when
// the run began: interrupts and threads move.
func TestServingCPUsAreThoseThatPolled(t *testing.T) {
	q := model.Queue{Ifindex: 2}
	l := &Loop{
		serving: map[model.Queue]map[int]bool{q: {0: true}},
		options: Options{Evidence: EvidenceOptions{Steal: 0.01, Tick: 10 * time.Millisecond}},
	}
	sample := func(cpus ...int) *model.Sample {
		return &model.Sample{
			Span:   time.Second,
			Queues: []model.QueueSample{{Queue: q, CPUs: cpus}},
			CPUs: []model.CPUSample{
				{CPU: 0, Busy: 100 * time.Millisecond},
				{CPU: 1, Busy: 400 * time.Millisecond, Steal: 200 * time.Millisecond},
				{CPU: 2, Busy: 900 * time.Millisecond},
			},
		}
	}
	for _, tt := range []struct {
		name        string
		cpus        []int
		utilisation float64
		stolen      bool
	}{
		{"not known: those of the beginning", nil, 0.1, false},
		{"moved", []int{1}, 0.5, true},
		{"moved again", []int{2}, 0.9, false},
		{"several", []int{1, 2}, 0.9, true},
	} {
		s := sample(tt.cpus...)
		if got := l.utilisation(s, q, &s.Queues[0]); got != tt.utilisation {
			t.Errorf("%s: utilisation %v, want %v", tt.name, got, tt.utilisation)
		}
		if _, _, got := l.stolen(s, q); got != tt.stolen {
			t.Errorf("%s: stolen %v, want %v", tt.name, got, tt.stolen)
		}
	}
}
