package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

func TestEvidence(t *testing.T) {
	tests := []struct {
		name   string
		change func(*model.Sample)
		why    string
	}{
		{"a window with lost events decides nothing", func(s *model.Sample) { s.Lost = 3 }, "lost 3 events"},
		{"a window with two ticks of steal decides nothing", func(s *model.Sample) {
			s.CPUs = []model.CPUSample{{CPU: 1, Steal: 20 * time.Millisecond}}
		}, "took 20ms of 1s from CPU 1"},
		{"delays that were not observed are no evidence", func(s *model.Sample) { s.Queues[0].Delay = nil }, "no delay was observed"},
		{"199 delays are too few for a p90", func(s *model.Sample) {
			h := &model.Histogram{}
			h.Add(100*us, 19)
			s.Queues[0].Delay = h
		}, "p90 needs 200"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
			for range 9 {
				s := b.sample(same(steady()))
				tc.change(&s)
				b.step(s)
			}
			if n := len(b.policy.seen); n != 0 {
				t.Errorf("the policy was asked %d times", n)
			}
			if len(b.kernel.writes) != 0 {
				t.Errorf("wrote %v", b.kernel.writes)
			}
			b.wantEntry("evidence", model.VerdictHeld, tc.why)
		})
	}
}

func TestEvidenceAllowsOneTickOfSteal(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	s := b.sample(same(steady()))
	s.Span = 250 * time.Millisecond
	s.CPUs = []model.CPUSample{{CPU: 1, Steal: 10 * time.Millisecond}}
	b.step(s)
	b.wantState(deferralOf(50 * us))
}

func TestEvidenceIgnoresStealElsewhere(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), func(o *tuner.Options) {
		o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
	})
	s := b.sample(same(steady()))
	s.CPUs = []model.CPUSample{{CPU: 0, Steal: 500 * time.Millisecond}}
	b.step(s)
	b.wantState(deferralOf(50 * us))
}

func TestEvidenceMergesWindows(t *testing.T) {
	b := newBench(t, 1, hold, nil)
	few := steady()
	few.packets = 60
	b.run(4, same(few))
	if len(b.policy.seen) != 1 {
		t.Fatalf("asked %d times in 4 windows of 60 delays, want once", len(b.policy.seen))
	}
	f := b.policy.seen[0]
	if f.Windows != 4 || f.Delay.Count() != 240 || f.Span != 4*time.Second {
		t.Errorf("merged %d windows, %d delays, %v", f.Windows, f.Delay.Count(), f.Span)
	}
}

func TestVeryLowRateFallsBackToInterrupts(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.run(1, same(steady()))
	b.wantState(deferralOf(50 * us))
	quiet := steady()
	quiet.packets = 5
	b.run(11, same(quiet))
	b.wantState(model.Settings{})
	b.wantEntry("evidence", model.VerdictApplied, "too few to tune by")
}

func TestAnOrderNeedsNoEvidenceAndNoSteps(t *testing.T) {
	want := deferralOf(2 * time.Millisecond)
	b := newBench(t, 1, hold, func(o *tuner.Options) { o.Policy = policy.NewStatic(want) })
	s := b.sample(same(window{}))
	s.Lost = 5
	b.step(s)
	b.wantState(want)
	b.run(5, same(window{packets: 20_000, cost: us, delay: time.Second}))
	b.wantState(want)
}
