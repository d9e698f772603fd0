package policy_test

import (
	"testing"
	"time"

	"autotune/model"
)

// entering returns the first decision of a queue whose interrupts break the SLO.
func entering(t *testing.T, median time.Duration, ready bool) model.Settings {
	t.Helper()
	l := newLaw(21)
	l.ready = ready
	f := l.features(0, 100_000, model.Settings{}, target)
	f.Quantile, f.Median = 600*time.Microsecond, median
	return greyboxOf(t, "greybox").Decide(f).Settings
}

func TestGreyboxEntersSuspensionByTheMedian(t *testing.T) {
	near, far, unknown := entering(t, 30*time.Microsecond, true), entering(t, 120*time.Microsecond, true), entering(t, 0, true)
	for name, s := range map[string]model.Settings{"near": near, "far": far, "unknown": unknown} {
		if s.Mode() != model.ModeSuspension {
			t.Errorf("%s: the first move goes to %v", name, s)
		}
	}
	if near.GROFlushTimeout <= far.GROFlushTimeout {
		t.Errorf("%v at a median of 30 us, %v at 120 us and %v at none that is known", near, far, unknown)
	}
	if a, b := entering(t, 30*time.Microsecond, false), entering(t, 0, false); a != b {
		t.Errorf("where nothing may be suspended the median moves the first setting from %v to %v", b, a)
	}
}

// Where the CPU has room, deferral costs less than suspension as a rule, and is
// entered first; where it has none, timers would fill it.
func TestGreyboxEntersByTheRoomOfTheCPU(t *testing.T) {
	for _, tc := range []struct {
		utilisation float64
		want        model.Mode
	}{{0.3, model.ModeDeferral}, {0.8, model.ModeSuspension}} {
		l := newLaw(24)
		l.ready = true
		f := l.features(0, 60_000, model.Settings{}, target)
		f.Quantile, f.Median, f.Utilisation = 600*time.Microsecond, 80*time.Microsecond, tc.utilisation
		f.CostPerPacket = time.Duration(tc.utilisation / f.PacketRate * 1e9)
		if got := greyboxOf(t, "greybox").Decide(f).Settings; got.Mode() != tc.want {
			t.Errorf("with the CPU %.0f%% busy the first move goes to %v, want %v", 100*tc.utilisation, got, tc.want)
		}
	}
}

// A jump that began in the midst of a window is met with the load that was seen
// before, not with the part of it that the window shows.
func TestGreyboxMeetsAJumpWithTheHighestLoadOfLate(t *testing.T) {
	l := newLaw(22)
	l.ready = true
	settle := func(p model.Policy) {
		drive(t, p, l, 120, func(w int) float64 {
			if w < 60 {
				return 235_000
			}
			return 40_000
		})
	}
	meet := func(settle func(model.Policy)) time.Duration {
		p := greyboxOf(t, "greybox")
		settle(p)
		active := model.Settings{DeferHardIRQs: 20, GROFlushTimeout: 100 * time.Microsecond}
		f := l.features(0, 70_000, active, target)
		f.RateChange = 0.75
		return p.Decide(f).Settings.GROFlushTimeout
	}
	seen := meet(settle)
	never := meet(func(p model.Policy) { drive(t, p, l, 120, constant(40_000)) })
	if seen >= never {
		t.Errorf("after a jump to 70K packets/s the timeout is %v where 235K were seen, and %v where 40K were", seen, never)
	}
}

func TestGreyboxDefersForALoadThatMayFall(t *testing.T) {
	l := newLaw(23)
	l.ready = true
	last, _ := drive(t, greyboxOf(t, "greybox"), l, 100, constant(150_000))
	s := last.Active
	if s.Mode() == model.ModeInterrupts {
		t.Fatalf("%v", s)
	}
	// One gap in a thousand of a quarter of the load, in pairs of packets.
	longest := time.Duration(2 * 6.9 / (150_000.0 / 4) * float64(time.Second))
	if polls := time.Duration(s.DeferHardIRQs) * s.GROFlushTimeout; polls < longest {
		t.Errorf("%v polls for %v, and a gap takes %v", s, polls, longest)
	}
}
