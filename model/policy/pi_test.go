package policy_test

import (
	"testing"
	"time"

	"autotune/model"
)

func TestPIDoesNotWindUp(t *testing.T) {
	p := parse(t, "pi")
	active := model.Settings{}
	relaxed := func(f *model.Features) { f.Quantile = 20 * us }
	if got := steps(p, &active, 200, relaxed); got[199] != 200*us {
		t.Fatalf("far within the SLO it ends at %v", got[199])
	}
	pressed := func(f *model.Features) { f.Quantile = 500 * us }
	if got := steps(p, &active, 1, pressed); got[0] > 150*us {
		t.Errorf("one window after the SLO broke the timeout is %v", got[0])
	}
}

func TestPISettlesAtItsTarget(t *testing.T) {
	p := parse(t, "pi:target=0.8")
	active := model.Settings{}
	plant := func(f *model.Features) { f.Quantile = 40*us + f.Active.GROFlushTimeout*6/5 }
	got := steps(p, &active, 60, plant)
	// 0.8 of 250 us is reached at 133 us, within the dead band.
	for _, g := range got[20:] {
		if g < 115*us || g > 145*us {
			t.Fatalf("timeout %v, want about 133 us", g)
		}
	}
	if got[20] != got[59] {
		t.Errorf("it moves on from %v to %v", got[20], got[59])
	}
}

func TestPIKnowsWhereItsPlantReverses(t *testing.T) {
	deferred := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us}
	suspended := deferred
	suspended.IRQSuspendTimeout = 20 * time.Millisecond
	tests := []struct {
		name        string
		active      model.Settings
		utilisation float64
		quantile    time.Duration
		up          int
	}{
		{"room left", deferred, 0.9, 100 * us, +1},
		{"too slow", deferred, 0.5, 400 * us, -1},
		{"too slow with a full CPU", deferred, 0.9, 400 * us, +1},
		{"a little above the target with a full CPU", deferred, 0.9, 245 * us, 0},
		{"too slow with a full CPU in suspension", suspended, 0.9, 400 * us, -1},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := features(150_000, tc.active)
			f.Suspension.Ready = tc.active.IRQSuspendTimeout > 0
			f.Utilisation, f.Quantile = tc.utilisation, tc.quantile
			d := parse(t, "pi").Decide(f)
			got := 0
			switch g := d.Settings.GROFlushTimeout; {
			case g > 50*us:
				got = 1
			case g < 50*us:
				got = -1
			}
			if got != tc.up {
				t.Errorf("went %+d to %v, want %+d: %s", got, d.Settings, tc.up, d.Why)
			}
		})
	}
}

func TestPIRestsAfterARevert(t *testing.T) {
	p := parse(t, "pi")
	active := model.Settings{DeferHardIRQs: 40, GROFlushTimeout: 50 * us}
	f := told(150_000, active, model.VerdictReverted, active, model.Settings{DeferHardIRQs: 25, GROFlushTimeout: 78 * us}, model.PurposeCost)
	rested := 0
	for d := p.Decide(f); d.Purpose == model.PurposeHold && rested < 100; d = p.Decide(features(150_000, active)) {
		rested++
	}
	if rested < 10 || rested > 20 {
		t.Errorf("rested for %d windows", rested)
	}
}
