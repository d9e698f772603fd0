package tuner_test

import (
	"math"
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

func TestTrialKeepsAMoveThatLowersCost(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	b.run(12, costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 15 * us}))
	b.wantState(deferralOf(50 * us))
	e := b.wantEntry("trial", model.VerdictKept, "cost per packet -25.0%")
	if e.From != (model.Settings{}) || e.To != deferralOf(50*us) {
		t.Errorf("kept entry goes from %v to %v", e.From, e.To)
	}
}

func TestTrialRevertsAGrossMoveWithinItsFirstWindow(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	show := costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 50 * us})
	b.run(3, show)
	b.wantState(deferralOf(50 * us))
	b.run(1, show)
	b.wantState(model.Settings{})
	b.wantEntry("trial", model.VerdictReverted, "+150% at once")
	b.run(1, show)
	b.run(1, show)
	last := b.policy.seen[len(b.policy.seen)-1].Outcome
	if last.Verdict != model.VerdictReverted || math.Abs(last.CostChange-1.5) > 0.01 {
		t.Errorf("the policy was told %+v, want reverted with a cost change of 1.5", last)
	}
}

func TestTrialRevertsWhatDoesNotLowerCost(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	show := costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 20 * us})
	b.run(3+1+8, show)
	b.wantState(model.Settings{})
	b.wantEntry("trial", model.VerdictReverted, "cost per packet +0.0%")
}

func TestTrialRevertsWhatBreaksTheSLO(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	b.run(7, func(_ model.Queue, s model.Settings) window {
		w := steady()
		if s.GROFlushTimeout > 0 {
			w.cost, w.delay = 19*us, 400*us
		}
		return w
	})
	b.wantState(model.Settings{})
	b.wantEntry("trial", model.VerdictReverted, "broke the SLO")
}

func TestTrialJudgesADirection(t *testing.T) {
	// The first steps cost more than the start; only the last pays.
	climb := func(f model.Features) model.Decision {
		next := max(25*us, 2*f.Active.GROFlushTimeout)
		if next > 200*us {
			return hold(f)
		}
		return model.Decision{Settings: deferralOf(next), Purpose: model.PurposeCost, Why: "up"}
	}
	b := newBench(t, 1, climb, nil)
	b.run(20, costs(map[time.Duration]time.Duration{0: 20 * us, 25 * us: 22 * us, 50 * us: 21 * us, 100 * us: 19500, 200 * us: 14 * us}))
	b.wantState(deferralOf(200 * us))
	e := b.wantEntry("trial", model.VerdictKept, "against defer=0,flush=0s")
	if e.From != (model.Settings{}) {
		t.Errorf("the direction was judged against %v, want where it began", e.From)
	}
}

func TestTrialMeasuresAStepThatLooksBetterToTheEnd(t *testing.T) {
	// The second step pays; the third would break the SLO.
	climb := func(f model.Features) model.Decision {
		return model.Decision{Settings: deferralOf(max(25*us, 2*f.Active.GROFlushTimeout)), Purpose: model.PurposeCost, Why: "up"}
	}
	b := newBench(t, 1, climb, nil)
	b.run(40, func(_ model.Queue, s model.Settings) window {
		w := steady()
		if s.GROFlushTimeout == 50*us {
			w.cost = 16 * us
		}
		if s.GROFlushTimeout == 100*us {
			w.cost, w.delay = 12*us, 500*us
		}
		return w
	})
	b.wantState(deferralOf(50 * us))
	b.wantEntry("trial", model.VerdictKept, "cost per packet -20.0%")
}

func TestTrialGivesADirectionUpBeyondItsTolerance(t *testing.T) {
	climb := func(f model.Features) model.Decision {
		return model.Decision{Settings: deferralOf(max(25*us, 2*f.Active.GROFlushTimeout)), Purpose: model.PurposeCost, Why: "up"}
	}
	b := newBench(t, 1, climb, nil)
	b.run(6, costs(map[time.Duration]time.Duration{0: 20 * us, 25 * us: 28 * us, 50 * us: 28 * us}))
	b.wantEntry("trial", model.VerdictReverted, "cost per packet +40.0%")
	for _, c := range b.kernel.writes {
		if c[b.queues[0]].GROFlushTimeout > 25*us {
			t.Errorf("went on to %v", c[b.queues[0]])
		}
	}
}

func TestTrialKeepsASafetyMoveThatLowersDelayAndCosts(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(20*us), model.PurposeSafety), nil)
	b.kernel.state[b.queues[0]] = deferralOf(200 * us)
	b.run(8, func(_ model.Queue, s model.Settings) window {
		if s.GROFlushTimeout == 20*us {
			return window{packets: 20_000, cost: 30 * us, delay: 200 * us}
		}
		return window{packets: 20_000, cost: 20 * us, delay: 400 * us}
	})
	b.wantState(deferralOf(20 * us))
	b.wantEntry("trial", model.VerdictKept, "p90 -")
}

func TestTrialIsAbortedWhenLoadMoves(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	b.run(4, same(steady()))
	fast := steady()
	fast.packets = 80_000
	b.run(2, same(fast))
	b.wantState(model.Settings{})
	b.wantEntry("trial", model.VerdictAborted, "load moved to 80000 packets/s")
}

// Back from a move that only lets packets wait longer would save nothing, and is
// no safer where the SLO holds.
func TestALongerTimeoutStaysWhenLoadMoves(t *testing.T) {
	for _, tc := range []struct {
		name  string
		delay time.Duration
		want  time.Duration
	}{
		{"where the SLO holds", 100 * us, 100 * us},
		{"where it is broken", 300 * us, 50 * us},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, always(deferralOf(100*us), model.PurposeCost), nil)
			b.kernel.state[b.queues[0]] = deferralOf(50 * us)
			b.run(3, same(steady()))
			moved := steady()
			moved.packets, moved.delay = 10_000, tc.delay
			b.run(2, same(moved))
			b.wantState(deferralOf(tc.want))
			b.wantEntry("trial", model.VerdictAborted, "load moved to 10000 packets/s")
		})
	}
}

// A move in the same loop that fits into the SLO with all that it can add to the
// delay is tried without waiting for windows to compare with.
func TestALongerTimeoutThatFitsIsTriedAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		from model.Settings
		flat time.Duration
		want time.Duration
	}{
		{"longer and within the SLO", deferralOf(50 * us), 100 * us, 75 * us},
		{"longer and perhaps not", deferralOf(50 * us), 230 * us, 50 * us},
		{"from interrupts", model.Settings{}, 100 * us, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, always(deferralOf(75*us), model.PurposeCost), nil)
			b.kernel.state[b.queues[0]] = tc.from
			w := steady()
			w.delay = tc.flat
			b.run(1, same(w))
			if got := b.kernel.state[b.queues[0]].GROFlushTimeout; got != tc.want {
				t.Errorf("flush timeout %v after one window, want %v", got, tc.want)
			}
		})
	}
}

// What broke the SLO is not gone back to, and the policy need not wait for a load
// like that before. Its next move has nothing to be compared with, and is kept
// once the SLO holds.
func TestASafetyMoveThatHoldsNeedsNoComparison(t *testing.T) {
	b := newBench(t, 1, func(f model.Features) model.Decision {
		to := 100 * us
		if f.PacketRate > 50_000 {
			to = 20 * us
		}
		if f.Active == deferralOf(to) {
			return hold(f)
		}
		return model.Decision{Settings: deferralOf(to), Purpose: model.PurposeSafety, Why: "late"}
	}, nil)
	b.kernel.state[b.queues[0]] = deferralOf(200 * us)
	late, fast := steady(), steady()
	late.delay = 400 * us
	fast.packets = 80_000
	b.run(2, same(late))
	b.wantState(deferralOf(100 * us))
	b.run(1, same(fast))
	b.wantState(deferralOf(20 * us))
	b.wantEntry("trial", model.VerdictAborted, "it stays")
	b.run(3, same(fast))
	b.wantEntry("trial", model.VerdictKept, "nothing at this load to compare with")
}

func TestTrialNeedsAKnownCost(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	for range 6 {
		s := b.sample(same(steady()))
		s.Queues[0].ThreadTime = nil
		b.step(s)
	}
	b.wantState(model.Settings{})
	b.wantEntry("trial", model.VerdictHeld, "cost was not observed")
}

func TestAReturnNobodySawHoldHasToProveItself(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(200*us), model.PurposeReturn), nil)
	b.run(4, same(steady()))
	if got := b.kernel.state[b.queues[0]].GROFlushTimeout; got != 129*us {
		t.Errorf("flush %v, want one limited step to 129us", got)
	}
}

func TestMemoryLetsALaterLoopReturnAtOnce(t *testing.T) {
	memory := tuner.NewMemory()
	show := costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 18 * us, 100 * us: 14 * us, 200 * us: 10 * us})
	first := newBench(t, 1, always(deferralOf(200*us), model.PurposeCost), func(o *tuner.Options) { o.Memory = memory })
	first.run(20, show)
	first.wantState(deferralOf(200 * us))
	second := newBench(t, 1, always(deferralOf(200*us), model.PurposeReturn), func(o *tuner.Options) { o.Memory = memory })
	second.run(1, show)
	second.wantState(deferralOf(200 * us))
}

func TestOneQueueInEightIsOnTrial(t *testing.T) {
	const n = 17
	b := newBench(t, n, always(deferralOf(50*us), model.PurposeCost), nil)
	most := 0
	for range 120 {
		b.run(1, costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 20 * us}))
		trying := 0
		for _, s := range b.kernel.state {
			if s.GROFlushTimeout > 0 {
				trying++
			}
		}
		most = max(most, trying)
	}
	if most != 3 {
		t.Errorf("%d of %d queues were on trial at once, want 3", most, n)
	}
	tried := map[model.Queue]bool{}
	for _, c := range b.kernel.writes {
		for q := range c {
			tried[q] = true
		}
	}
	if len(tried) != n {
		t.Errorf("%d of %d queues ever had a trial", len(tried), n)
	}
	b.wantEntry("cooldown", model.VerdictHeld, "of 17 queues on trial")
}
