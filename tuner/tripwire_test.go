package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
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
