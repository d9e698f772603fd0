package policy_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/model"
)

// steps runs a policy for some windows on a host that shows what show says of
// the active setting, and returns the flush timeouts proposed.
func steps(p model.Policy, active *model.Settings, windows int, show func(*model.Features)) []time.Duration {
	var out []time.Duration
	for range windows {
		f := features(150_000, *active)
		show(&f)
		d := p.Decide(f)
		*active = d.Settings
		out = append(out, d.Settings.GROFlushTimeout)
	}
	return out
}

// cheaperUp is a host on which more timeout costs less, and delays by as much.
func cheaperUp(f *model.Features) {
	g := f.Active.GROFlushTimeout
	f.CostPerPacket = 3*us + 20*us*us/(g+5*us)
	f.Quantile = 30*us + g
}

func TestLadderClimbsParksAndLeaves(t *testing.T) {
	p := parse(t, "ladder")
	active := model.Settings{}
	got := steps(p, &active, 10, cheaperUp)
	// 182 us is above the SLO of 200 us; one rung below it parks.
	want := []time.Duration{19500, 30500, 47700, 74500, 116400, 181900, 116400, 116400, 116400, 116400}
	within := func(f *model.Features) { cheaperUp(f); f.Objective.SLO = 200 * us }
	active, p = model.Settings{}, parse(t, "ladder")
	if diff := cmp.Diff(want, steps(p, &active, 10, within)); diff != "" {
		t.Errorf("climb (-want +got):\n%s", diff)
	}
	if top := got[len(got)-1]; top != 200*us && top != 181900 {
		t.Errorf("without a broken SLO it ends at %v", top)
	}
	for _, g := range steps(p, &active, 50, within) {
		if g != 116400 {
			t.Fatalf("parked on top, it went to %v", g)
		}
	}
	busier := func(f *model.Features) { within(f); f.PacketRate *= 1.3 }
	if got := steps(p, &active, 1, busier); got[0] != 74500 {
		t.Errorf("after load moved it went to %v, want the neighbour 74.5µs", got[0])
	}
}

func TestLadderTires(t *testing.T) {
	p := parse(t, "ladder:tired=3")
	active := model.Settings{}
	got := steps(p, &active, 6, cheaperUp)
	want := []time.Duration{19500, 30500, 47700, 47700, 47700, 47700}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := steps(p, &active, 1, cheaperUp); got[0] == want[5] {
		t.Error("rested, it does not go on")
	}
}

func TestLadderMendsABrokenSLOByWhatBrokeIt(t *testing.T) {
	const at = 47700
	deferred := model.Settings{DeferHardIRQs: 41, GROFlushTimeout: at}
	suspended := deferred
	suspended.IRQSuspendTimeout = 20 * time.Millisecond
	tests := []struct {
		name        string
		active      model.Settings
		utilisation float64
		slo         time.Duration
		want        time.Duration
	}{
		{"down", deferred, 0.5, 250 * us, 30500},
		{"up where timers fill the CPU", deferred, 0.9, 250 * us, 74500},
		{"not at all where more is too long as well", deferred, 0.9, 90 * us, at},
		{"down in suspension, however full the CPU", suspended, 0.9, 250 * us, 30500},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			f := features(150_000, tc.active)
			f.Suspension.Ready = tc.active.IRQSuspendTimeout > 0
			f.Utilisation, f.Objective.SLO, f.Quantile = tc.utilisation, tc.slo, 2*tc.slo
			d := parse(t, "ladder").Decide(f)
			if d.Settings.GROFlushTimeout != tc.want {
				t.Errorf("went to %v, want %v: %s", d.Settings, tc.want, d.Why)
			}
			if tc.want != at && d.Purpose != model.PurposeSafety {
				t.Errorf("for %s", d.Purpose)
			}
		})
	}
}

func TestLadderParksWhereATrialPutItBack(t *testing.T) {
	p := parse(t, "ladder")
	active := model.Settings{DeferHardIRQs: 41, GROFlushTimeout: 47700}
	d := p.Decide(features(150_000, active))
	if d.Settings == active {
		t.Fatalf("no step: %s", d.Why)
	}
	f := told(150_000, active, model.VerdictReverted, active, d.Settings, d.Purpose)
	for range 20 {
		if d := p.Decide(f); d.Settings != active {
			t.Fatalf("went to %v: %s", d.Settings, d.Why)
		}
		f = features(150_000, active)
	}
}
