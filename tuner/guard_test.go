package tuner_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
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

func TestSLOGuardKeepsTheTimeoutOfSuspensionWhileTheCPUIsFull(t *testing.T) {
	for _, tc := range []struct {
		name string
		busy time.Duration
		want time.Duration
	}{
		{"full", 970 * time.Millisecond, 20 * us},
		{"with room", 900 * time.Millisecond, 12 * us},
	} {
		t.Run(tc.name, func(t *testing.T) {
			suspend := model.Settings{DeferHardIRQs: 20, GROFlushTimeout: 20 * us, IRQSuspendTimeout: 20 * time.Millisecond}
			b := newBench(t, 1, always(suspend, model.PurposeSafety), func(o *tuner.Options) {
				o.CPUs = map[model.Queue][]int{testQueue(0): {1}}
			})
			for range 9 {
				s := b.sample(func(_ model.Queue, s model.Settings) window {
					w := steady()
					w.delay = 900 * us
					if s.IRQSuspendTimeout > 0 {
						w.delay = 300 * us
					}
					return w
				})
				s.Apps = []model.AppSample{{PID: 7, Comm: "memcached", Contexts: []model.EpollContext{{FD: 5, Prefer: true, NAPIIDs: []uint32{8193}}}}}
				s.CPUs = []model.CPUSample{{CPU: 1, Busy: tc.busy}}
				b.step(s)
			}
			if got := b.kernel.state[b.queues[0]].GROFlushTimeout; got != tc.want {
				t.Errorf("flush timeout %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAnUnknownPurposeIsRefused(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), "whim"), nil)
	b.run(2, same(steady()))
	b.wantState(model.Settings{})
	b.wantEntry("loop", model.VerdictRefused, fmt.Sprintf("%q", "whim"))
}
