package tuner_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
	"autotune/model/policy"
	"autotune/tuner"
)

const us = time.Microsecond

// costs shows a cost by flush timeout.
func costs(at map[time.Duration]time.Duration) func(model.Queue, model.Settings) window {
	return func(_ model.Queue, s model.Settings) window {
		w := steady()
		w.cost = at[s.GROFlushTimeout]
		w.delay += s.GROFlushTimeout / 2
		return w
	}
}

func (b *bench) wantState(want model.Settings) {
	b.t.Helper()
	if diff := cmp.Diff(want, b.kernel.state[b.queues[0]]); diff != "" {
		b.t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func (b *bench) wantEntry(guard string, v model.Verdict, why string) tuner.Entry {
	b.t.Helper()
	e, ok := b.journal.find(guard, v)
	if !ok {
		for _, x := range *b.journal {
			b.t.Logf("%v %s %s %s: %s", x.At, x.Guard, x.Verdict, x.Purpose, x.Why)
		}
		b.t.Fatalf("no entry of guard %q with verdict %q", guard, v)
	}
	if !strings.Contains(e.Why, why) {
		b.t.Errorf("guard %s says %q, which does not contain %q", guard, e.Why, why)
	}
	return e
}

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

func TestOwnershipYieldsToAnotherWriter(t *testing.T) {
	b := newBench(t, 2, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.run(1, same(steady()))
	foreign := deferralOf(77 * us)
	b.kernel.state[b.queues[0]] = foreign
	b.run(20, same(steady()))
	b.wantState(foreign)
	b.wantEntry("ownership", model.VerdictRefused, "changed by another writer")
	// What the loop wrote is there again: taken back after the back-off.
	b.kernel.state[b.queues[0]] = deferralOf(50 * us)
	b.run(60, same(steady()))
	b.wantEntry("ownership", model.VerdictHeld, "last written was")
	found := false
	for _, e := range *b.journal {
		found = found || strings.Contains(e.Why, "taken back")
	}
	if !found {
		t.Error("the queue was not taken back")
	}
}

func TestOwnershipOfTheOnlyQueueEndsTheRun(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.run(1, same(steady()))
	b.kernel.state[b.queues[0]] = deferralOf(77 * us)
	err := b.loop.Step(context.Background(), b.sample(same(steady())))
	if !errors.Is(err, tuner.ErrNoQueue) || !errors.Is(err, model.ErrForeignWrite) {
		t.Errorf("got %v, want ErrNoQueue and ErrForeignWrite", err)
	}
}

func TestAChangeBeforeTheFirstWriteIsTakenAsTheStart(t *testing.T) {
	b := newBench(t, 1, hold, nil)
	b.run(1, same(steady()))
	b.kernel.state[b.queues[0]] = deferralOf(77 * us)
	b.run(3, same(steady()))
	b.wantEntry("ownership", model.VerdictHeld, "starting from there")
}

func TestReadiness(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	context := func(prefer bool, ids ...uint32) []model.AppSample {
		return []model.AppSample{{PID: 7, Comm: "memcached", Contexts: []model.EpollContext{{FD: 5, Prefer: prefer, NAPIIDs: ids}}}}
	}
	polling := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * us, BusyPoll: model.BusyPoll{Span: 64 * us, Budget: 64, Prefer: true}}
	// What is left of the two without suspension and busy polling.
	deferral := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us}
	alone := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 200 * us}
	selected := func(apps []model.AppSample) []model.AppSample {
		apps[0].Selected = true
		return apps
	}
	tests := []struct {
		name     string
		settings model.Settings
		apps     []model.AppSample
		why      string // empty when allowed
		// rest is what an order comes to that is not carried out as a whole.
		rest model.Settings
	}{
		{"a context of this NAPI that prefers busy polling allows it", suspend, context(true, 8193), "", suspend},
		{"no preference forbids it", suspend, context(false, 8193), "no application was seen to prefer busy polling on NAPI 8193", deferral},
		{"a mixed context forbids it", suspend, context(true, 8193, 8194), "mixes sockets", deferral},
		{"a context of another NAPI forbids it", suspend, context(true, 8194), "no application was seen to prefer", deferral},
		{"no application forbids it", suspend, []model.AppSample{}, "no application was seen to prefer", deferral},
		{"unobserved applications forbid it", suspend, nil, "were not observed", deferral},
		{"busy polling is set on selected applications", polling, selected(context(false, 8193)), "", polling},
		{"and not on those that prefer it by themselves", polling, context(true, 8193), "usecs=64µs,budget=64,prefer=on refused: applications prefer busy polling by themselves", alone},
		{"nor where there is none", polling, []model.AppSample{}, "no application was seen to prefer", alone},
		{"it needs defer", model.Settings{GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}, context(true, 8193), "no effect without defer and flush", model.Settings{}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, hold, func(o *tuner.Options) { o.Policy = policy.NewStatic(tc.settings) })
			s := b.sample(same(steady()))
			s.Apps = tc.apps
			b.step(s)
			b.wantState(tc.rest)
			if tc.why == "" {
				return
			}
			if tc.rest != (model.Settings{}) {
				e := b.wantEntry("readiness", model.VerdictApplied, "by deferral alone, ")
				if e.Proposed != tc.settings || e.To != tc.rest {
					t.Errorf("ordered %v, applied %v", e.Proposed, e.To)
				}
				s = b.sample(same(steady()))
				s.Apps = tc.apps
				b.step(s)
				b.wantState(tc.rest)
			}
			b.wantEntry("readiness", model.VerdictRefused, tc.why)
		})
	}
}

func TestReadinessRefusesAMoveThatIsToBeJudgedByItsEffect(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	b := newBench(t, 1, always(suspend, model.PurposeCost), nil)
	for range 6 {
		s := b.sample(same(steady()))
		s.Apps = []model.AppSample{}
		b.step(s)
	}
	b.wantState(model.Settings{})
	b.wantEntry("readiness", model.VerdictRefused, "no application was seen to prefer")
}

func TestReadinessTakesSuspendBackWhenTheApplicationLeaves(t *testing.T) {
	suspend := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us, IRQSuspendTimeout: 20 * time.Millisecond}
	b := newBench(t, 1, always(suspend, model.PurposeOrder), nil)
	apps := []model.AppSample{{PID: 7, Comm: "memcached", Contexts: []model.EpollContext{{FD: 5, Prefer: true, NAPIIDs: []uint32{8193}}}}}
	s := b.sample(same(steady()))
	s.Apps = apps
	b.step(s)
	b.wantState(suspend)
	for range 2 {
		s = b.sample(same(steady()))
		s.Apps = []model.AppSample{}
		b.step(s)
	}
	b.wantState(model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us})
	b.wantEntry("readiness", model.VerdictApplied, "suspend is taken back")
}

func TestBoundsSaturateARunawayAndReportItOnce(t *testing.T) {
	data, err := os.ReadFile("testdata/runaway_overflow.json")
	if err != nil {
		t.Fatal(err)
	}
	var field struct {
		Start  int64   `json:"start"`
		Factor float64 `json:"factor"`
		LastOK int64   `json:"last_ok"`
	}
	if err := json.Unmarshal(data, &field); err != nil {
		t.Fatal(err)
	}
	// The field's tuner multiplied without a cap, here on each of its own
	// proposals, and in 32 bits.
	value := float64(field.Start)
	runaway := func(model.Features) model.Decision {
		value *= field.Factor
		return model.Decision{
			Settings: model.Settings{DeferHardIRQs: uint32(int64(value)), GROFlushTimeout: time.Duration(int64(value))},
			Purpose:  model.PurposeSafety, Why: "more",
		}
	}
	bounds := model.Bounds{MaxDefer: 1000, MaxFlush: 10 * time.Millisecond, MaxSuspend: time.Second}
	b := newBench(t, 1, runaway, func(o *tuner.Options) {
		o.Bounds = bounds
		o.StepLimit.Factor = 1e12
		o.Trial.Settle = -1
	})
	b.run(200, func(_ model.Queue, s model.Settings) window {
		// Each move lowers the delay, so that all are kept.
		w := steady()
		w.delay = time.Duration(float64(200*us) / (1 + float64(s.GROFlushTimeout)/1e5))
		return w
	})
	limits := 0
	for _, e := range *b.journal {
		if strings.HasPrefix(e.Why, "at limit") && e.Verdict != model.VerdictHeld {
			limits++
		}
	}
	if value < 2*float64(field.LastOK) {
		t.Fatalf("the runaway reached only %g", value)
	}
	if limits != 1 {
		t.Errorf("reported at limit %d times, want once", limits)
	}
	for _, c := range b.kernel.writes {
		for _, s := range c {
			if err := bounds.Check(s); err != nil {
				t.Errorf("reached the actuator: %v", err)
			}
		}
	}
	b.wantState(model.Settings{DeferHardIRQs: 1000, GROFlushTimeout: 10 * time.Millisecond})
}

func TestBoundsRefuseWhatIsNoSetting(t *testing.T) {
	b := newBench(t, 1, always(model.Settings{DeferHardIRQs: 5, GROFlushTimeout: -us}, model.PurposeSafety), nil)
	b.run(1, same(steady()))
	b.wantState(model.Settings{})
	b.wantEntry("bounds", model.VerdictRefused, "gro-flush-timeout -1µs")
}

func TestBoundsRefuseAnOrderRatherThanChangeIt(t *testing.T) {
	b := newBench(t, 1, hold, func(o *tuner.Options) { o.Policy = policy.NewStatic(deferralOf(20 * time.Millisecond)) })
	b.run(1, same(steady()))
	b.wantState(model.Settings{})
	b.wantEntry("bounds", model.VerdictRefused, "gro-flush-timeout 20ms not in 0 to 10ms")
}

func TestStepLimit(t *testing.T) {
	// The p99 of 100 us counts as 105.5 us, where its bucket ends, of an SLO
	// of 250 us.
	tests := []struct {
		name           string
		delay          time.Duration
		headroom       float64
		from, ask, get time.Duration
	}{
		{"from interrupts by nine tenths of what the SLO leaves", 100 * us, 0, 0, 200 * us, 129 * us},
		{"from 80 us as well", 100 * us, 0, 80 * us, 1000 * us, 209 * us},
		{"by as much as is configured", 100 * us, 0.5, 0, 200 * us, 72 * us},
		{"from interrupts at most 50 us", 100 * us, -1, 0, 200 * us, 50 * us},
		{"from 80 us at most twice as far", 100 * us, -1, 80 * us, 1000 * us, 160 * us},
		{"from 10 us still up to 50 us", 100 * us, -1, 10 * us, 200 * us, 50 * us},
		{"with nothing left, as if not known", 260 * us, 0, 0, 200 * us, 50 * us},
		{"down without limit", 100 * us, 0, 200 * us, 8 * us, 8 * us},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, always(deferralOf(tc.ask), model.PurposeSafety), func(o *tuner.Options) { o.StepLimit.Headroom = tc.headroom })
			if tc.from > 0 {
				b.kernel.state[b.queues[0]] = deferralOf(tc.from)
			}
			w := steady()
			w.delay = tc.delay
			b.run(1, same(w))
			b.wantState(deferralOf(tc.get))
		})
	}
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

func TestCooldownWaitsWhileLoadRises(t *testing.T) {
	// Without this the trial would miss windows to compare with first.
	anyLoad := func(o *tuner.Options) { o.Trial.Similar = 10 }
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), anyLoad)
	packets := uint64(10_000)
	for range 8 {
		packets = packets * 13 / 10
		w := steady()
		w.packets = packets
		b.run(1, same(w))
	}
	b.wantState(model.Settings{})
	b.wantEntry("cooldown", model.VerdictHeld, "load rises by 30%")
}

func TestTripwireRollsBackAfterOneWindow(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	b.run(1, same(steady()))
	b.wantState(deferralOf(50 * us))
	bad := steady()
	bad.delay = 2 * time.Millisecond
	b.run(1, same(bad))
	b.wantState(model.Settings{})
	b.wantEntry("tripwire", model.VerdictReverted, "above 4 times the SLO")
}

func TestTripwireTakesASingleWindowAtRestForTheHosts(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	show := costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 15 * us})
	spike := func(q model.Queue, s model.Settings) window {
		w := show(q, s)
		w.delay = 2 * time.Millisecond
		return w
	}
	b.run(14, show)
	b.wantEntry("trial", model.VerdictKept, "")
	b.run(1, spike)
	b.wantState(deferralOf(50 * us))
	b.run(1, show)
	b.wantState(deferralOf(50 * us))
	b.run(2, spike)
	b.wantState(model.Settings{})
	b.wantEntry("tripwire", model.VerdictApplied, "above 4 times the SLO")
}

func TestTripwireRollsBackWhenTheCPUFills(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), func(o *tuner.Options) {
		o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
	})
	for i, busy := range []time.Duration{600, 970} {
		w := steady()
		w.cost += time.Duration(i) * us
		s := b.sample(same(w))
		s.CPUs = []model.CPUSample{{CPU: 1, Busy: busy * time.Millisecond}, {CPU: 0, Busy: time.Second}}
		b.step(s)
	}
	b.wantState(model.Settings{})
	b.wantEntry("tripwire", model.VerdictReverted, "utilisation rose from 0.60 to 0.97")
}

func TestTripwireLeavesAMoveThatOthersFillTheCPUUnder(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), func(o *tuner.Options) {
		o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
	})
	for i, busy := range []time.Duration{600, 970} {
		w := steady()
		w.cost -= time.Duration(i) * us
		s := b.sample(same(w))
		s.CPUs = []model.CPUSample{{CPU: 1, Busy: busy * time.Millisecond}}
		b.step(s)
	}
	b.wantState(deferralOf(50 * us))
}

func TestBreakerFreezesADirectionAndDoubles(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
	show := costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 60 * us})
	frozen := func() (from, to time.Duration) {
		start := len(*b.journal)
		for range 3000 {
			b.run(1, show)
		}
		for _, e := range (*b.journal)[start:] {
			if e.Guard == "breaker" {
				if from == 0 {
					from = e.At
				}
			} else if from > 0 && e.Verdict == model.VerdictApplied {
				return from, e.At
			}
		}
		return from, to
	}
	from, to := frozen()
	if got := to - from; got < 590*time.Second || got > 610*time.Second {
		t.Errorf("frozen for %v, want about 10 minutes", got)
	}
	var pauses []time.Duration
	var last time.Duration
	for _, e := range *b.journal {
		if e.Verdict == model.VerdictReverted {
			if last > 0 && e.At-last > time.Minute {
				pauses = append(pauses, (e.At - last).Round(time.Minute))
			}
			last = e.At
		}
	}
	if len(pauses) < 2 || pauses[1] != 2*pauses[0] {
		t.Errorf("pauses %v, want each twice the one before", pauses)
	}
	b.wantEntry("breaker", model.VerdictRefused, "reverted 3 times in 60 windows")
}

func TestSLOGuardLeavesASettingThatBreaches(t *testing.T) {
	b := newBench(t, 1, func(f model.Features) model.Decision {
		if f.Active == (model.Settings{}) && f.At < 10*time.Second {
			return model.Decision{Settings: deferralOf(50 * us), Purpose: model.PurposeSafety, Why: "in"}
		}
		return hold(f)
	}, nil)
	late := false
	show := func(_ model.Queue, s model.Settings) window {
		w := steady()
		w.delay = 200 * us
		if s.GROFlushTimeout > 0 {
			w.delay = 150 * us
			if late {
				w.delay = 400 * us
			}
		}
		return w
	}
	b.run(12, show)
	b.wantState(deferralOf(50 * us))
	late = true
	b.run(8, show)
	e := b.wantEntry("slo", model.VerdictApplied, "above the SLO 250µs in 3 windows")
	if e.Purpose != model.PurposeSafety || e.To.GROFlushTimeout >= 50*us {
		t.Errorf("answered with %v for %s", e.To, e.Purpose)
	}
}

func TestSLOGuardKeepsTheTimeoutWhileTheCPUIsFull(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(20*us), model.PurposeSafety), func(o *tuner.Options) {
		o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
	})
	b.kernel.state[b.queues[0]] = deferralOf(100 * us)
	for range 4 {
		w := steady()
		w.delay = 400 * us
		s := b.sample(same(w))
		s.CPUs = []model.CPUSample{{CPU: 1, Busy: 900 * time.Millisecond}}
		b.step(s)
	}
	b.wantState(deferralOf(100 * us))
	b.wantEntry("slo", model.VerdictRefused, "a smaller flush timeout adds load")
}

func TestAnUnknownPurposeIsRefused(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), "whim"), nil)
	b.run(2, same(steady()))
	b.wantState(model.Settings{})
	b.wantEntry("loop", model.VerdictRefused, fmt.Sprintf("%q", "whim"))
}
