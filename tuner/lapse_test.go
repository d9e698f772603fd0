package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// lapses are the ways in which evidence can fail for good while packets flow.
func lapses() map[string]func(*model.Sample) {
	return map[string]func(*model.Sample){
		"no delay was observed":    func(s *model.Sample) { s.Queues[0].Delay = nil },
		"the probes lost 1 events": func(s *model.Sample) { s.Lost = 1 },
		"15 delays, where p90 needs 200": func(s *model.Sample) {
			s.Queues[0].Delay = &model.Histogram{}
			// In one window of the ten that are merged.
			if s.At/time.Second%10 == 0 {
				s.Queues[0].Delay.Add(100*us, 15)
			}
		},
		"the hypervisor took 50ms": func(s *model.Sample) { s.CPUs = []model.CPUSample{{CPU: 0, Steal: 50 * time.Millisecond}} },
	}
}

// tuned returns a bench whose queue was tuned from original to 40 us.
func tuned(t *testing.T, original model.Settings, change func(*tuner.Options)) (*bench, func(model.Queue, model.Settings) window) {
	t.Helper()
	want := deferralOf(40 * us)
	show := func(_ model.Queue, s model.Settings) window {
		w := steady()
		if s == want {
			w.cost /= 2
		}
		return w
	}
	b := newBench(t, 1, always(want, model.PurposeCost), change)
	b.kernel.state[testQueue(0)] = original
	b.run(30, show)
	b.wantState(want)
	return b, show
}

func TestWithoutEvidenceAQueueGoesBackToItsOriginal(t *testing.T) {
	original := deferralOf(30 * us)
	for why, change := range lapses() {
		t.Run(why, func(t *testing.T) {
			b, show := tuned(t, original, nil)
			blind := func(n int) {
				for range n {
					s := b.sample(show)
					change(&s)
					b.step(s)
				}
			}
			blind(59)
			b.wantState(deferralOf(40 * us))
			blind(11) // merged windows may hold the last delays for a while
			b.wantState(original)
			e := b.wantEntry("evidence", model.VerdictApplied, "")
			if e.Purpose != model.PurposeReturn || e.From != deferralOf(40*us) || e.To != original {
				t.Errorf("went back as %v from %v to %v", e.Purpose, e.From, e.To)
			}
			writes := len(b.kernel.writes)
			blind(200)
			b.wantState(original)
			if n := len(b.kernel.writes); n != writes {
				t.Errorf("wrote %d times more while nothing could be decided", n-writes)
			}
			b.run(30, show)
			b.wantState(deferralOf(40 * us))
		})
	}
}

func TestALapseTakesTenWindowsAndCanBeTurnedOff(t *testing.T) {
	tests := []struct {
		name  string
		lapse time.Duration
		until int // windows until it goes back; 0 is never
	}{
		{"ten windows", time.Second, 10},
		{"its time", 20 * time.Second, 20},
		{"never", -1, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b, show := tuned(t, model.Settings{}, func(o *tuner.Options) { o.Evidence.Lapse = tc.lapse })
			went := 0
			for i := range 300 {
				s := b.sample(show)
				s.Lost = 1
				b.step(s)
				if went == 0 && b.kernel.state[testQueue(0)] == (model.Settings{}) {
					went = i + 1
				}
			}
			if went != tc.until {
				t.Errorf("went back after %d windows, want %d", went, tc.until)
			}
		})
	}
}

func TestALapseLeavesWhatIsNotTheLoops(t *testing.T) {
	blind := func(b *bench, n int) {
		for range n {
			s := b.sample(same(steady()))
			s.Lost = 1
			b.step(s)
		}
	}
	t.Run("an order", func(t *testing.T) {
		b := newBench(t, 1, always(deferralOf(40*us), model.PurposeOrder), func(o *tuner.Options) {
			o.Policy = mustParse(t, "static:defer=20,flush=40us")
		})
		b.run(2, same(steady()))
		blind(b, 200)
		b.wantState(deferralOf(40 * us))
	})
	t.Run("another writer's queue", func(t *testing.T) {
		b, _ := tuned(t, model.Settings{}, nil)
		b.kernel.state[testQueue(0)] = deferralOf(77 * us)
		for range 200 {
			if err := b.loop.Step(t.Context(), func() model.Sample { s := b.sample(same(steady())); s.Lost = 1; return s }()); err != nil {
				break // no queue is left
			}
		}
		b.wantState(deferralOf(77 * us))
	})
}

func TestARevertKeepsTheSuspendTimeoutOfTheOriginal(t *testing.T) {
	original := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 30 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	b.kernel.state[testQueue(0)] = original
	for range 20 {
		b.run(1, same(steady()))
		if _, reverted := b.journal.find("trial", model.VerdictReverted); reverted {
			b.wantState(original)
			return
		}
	}
	t.Error("a move without effect was not reverted in 20 windows")
}
