package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/tuner"
)

// spiking shows a window beyond the tripwire.
func spiking(show func(model.Queue, model.Settings) window) func(model.Queue, model.Settings) window {
	return func(q model.Queue, s model.Settings) window {
		w := show(q, s)
		w.delay = 2 * time.Millisecond
		return w
	}
}

// What a trial did is no sign of a host that does such things by itself.
func TestTripwireDoesNotExcuseATrialByTheOneBefore(t *testing.T) {
	b := newBench(t, 1, always(deferralOf(50*us), model.PurposeSafety), nil)
	show := same(steady())
	for range 2 {
		for range 10 {
			b.run(1, show)
			if b.kernel.state[testQueue(0)] != (model.Settings{}) {
				break
			}
		}
		b.wantState(deferralOf(50 * us))
		b.run(1, spiking(show))
		b.wantState(model.Settings{})
	}
}

// A setting that spoils every third window is left, although no two follow upon
// each other.
func TestTripwireEndsASettingThatSpoilsWindowsNowAndThen(t *testing.T) {
	for _, tc := range []struct {
		name  string
		every int
		left  bool
	}{
		{"every third", 3, true},
		{"every tenth", 10, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
			show := costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 15 * us})
			b.run(14, show)
			b.wantState(deferralOf(50 * us))
			left := false
			for range 60 / tc.every {
				b.run(1, spiking(show))
				left = left || b.kernel.state[testQueue(0)] == model.Settings{}
				b.run(tc.every-1, show)
			}
			if left != tc.left {
				t.Errorf("the setting was left: %v, want %v", left, tc.left)
			}
		})
	}
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

// A queue overloaded by deferral has to be worked off after the tripwire ended it.
// What is late meanwhile is not the doing of the setting that it went back to.
func TestTripwireGoesBackToNothingThatTrippedIt(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration
		back  bool
	}{
		{"as late as before", 3 * time.Millisecond, false},
		{"far later", 9 * time.Millisecond, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, always(deferralOf(50*us), model.PurposeCost), nil)
			b.run(14, costs(map[time.Duration]time.Duration{0: 20 * us, 50 * us: 15 * us}))
			b.wantEntry("trial", model.VerdictKept, "")
			late := func(delay time.Duration) func(model.Queue, model.Settings) window {
				w := steady()
				w.delay = delay
				return same(w)
			}
			b.run(2, late(2*time.Millisecond))
			b.wantState(model.Settings{})
			b.wantEntry("tripwire", model.VerdictApplied, "above 4 times the SLO")
			b.run(1, late(tc.after))
			if back := b.kernel.state[testQueue(0)] == deferralOf(50*us); back != tc.back {
				t.Errorf("went back to what tripped it: %v, want %v", back, tc.back)
			}
		})
	}
}
