package tuner_test

import (
	"testing"
	"time"

	"autotune/model"
)

// A window in which a move settles, and what a policy that moves for cost first,
// and for safety from a broken SLO, makes of it.
func TestASettlingWindowIsActedUponWhereLoadOutruns(t *testing.T) {
	cheap, safe := deferralOf(100*us), deferralOf(50*us)
	jump := window{packets: 40_000, cost: 15 * us, delay: 400 * us}
	for _, tc := range []struct {
		name string
		// show is the settling window, and busy the share of its CPU.
		show window
		busy float64
		// forecast is the load that the policy says the move for cost is for.
		forecast float64
		// purpose is that of the answer.
		purpose model.Purpose
		want    model.Settings
	}{
		{"load doubles and breaks the SLO", jump, 0.5, 0, model.PurposeSafety, safe},
		{"load doubles within the SLO", window{packets: 40_000, cost: 15 * us, delay: 200 * us}, 0.5, 0, model.PurposeSafety, cheap},
		{"the SLO breaks under the same load", window{packets: 20_000, cost: 15 * us, delay: 400 * us}, 0.5, 0, model.PurposeSafety, cheap},
		{"the SLO breaks while load halves", window{packets: 10_000, cost: 15 * us, delay: 400 * us}, 0.5, 0, model.PurposeSafety, cheap},
		{"what was foreseen", jump, 0.5, 40_000, model.PurposeSafety, cheap},
		{"a move for cost", jump, 0.5, 0, model.PurposeCost, cheap},
		{"a move for knowledge", jump, 0.5, 0, model.PurposeExploration, cheap},
		{"less deferral on a full CPU", jump, 0.97, 0, model.PurposeSafety, cheap},
	} {
		t.Run(tc.name, func(t *testing.T) {
			decide := func(f model.Features) model.Decision {
				d := model.Decision{Settings: cheap, Purpose: model.PurposeCost, Why: "cheaper"}
				if tc.forecast > 0 {
					d.Forecast = &model.Forecast{PacketRate: tc.forecast}
				}
				switch {
				case f.Active == cheap && f.Quantile > f.Objective.SLO:
					return model.Decision{Settings: safe, Purpose: tc.purpose, Why: "too late"}
				case f.Active != model.Settings{}:
					return hold(f)
				}
				return d
			}
			b := newBench(t, 1, decide, nil)
			b.run(3, same(steady()))
			b.wantState(cheap)
			s := b.sample(same(tc.show))
			s.Queues[0].CPUs = []int{0}
			s.CPUs = []model.CPUSample{{CPU: 0, Busy: time.Duration(tc.busy * float64(s.Span))}}
			b.step(s)
			b.wantState(tc.want)
		})
	}
}

func TestASettlingWindowWithTooFewDelaysDecidesNothing(t *testing.T) {
	b := newBench(t, 1, func(f model.Features) model.Decision {
		if f.Quantile > f.Objective.SLO {
			return model.Decision{Settings: deferralOf(50 * us), Purpose: model.PurposeSafety, Why: "too late"}
		}
		return always(deferralOf(100*us), model.PurposeCost)(f)
	}, nil)
	b.run(9, same(window{packets: 90, cost: 20 * us, delay: 100 * us}))
	b.wantState(deferralOf(100 * us))
	seen := len(b.policy.seen)
	b.run(1, same(window{packets: 190, cost: 15 * us, delay: 400 * us}))
	b.wantState(deferralOf(100 * us))
	if got := len(b.policy.seen); got != seen {
		t.Errorf("the policy was asked upon 190 delays, where the quantile needs 200")
	}
}

// The move for cost ends without a verdict, and the one for safety is measured
// against what the settling window showed.
func TestWhatEndsAnOutrunTrialIsOnTrialItself(t *testing.T) {
	for _, tc := range []struct {
		name  string
		after time.Duration
		want  model.Settings
	}{
		{"it helps", 200 * us, deferralOf(50 * us)},
		{"it does harm", 700 * us, deferralOf(100 * us)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			answered := false
			b := newBench(t, 1, func(f model.Features) model.Decision {
				switch {
				case !answered && f.Active == deferralOf(100*us) && f.Quantile > f.Objective.SLO:
					answered = true
					return model.Decision{Settings: deferralOf(50 * us), Purpose: model.PurposeSafety, Why: "too late"}
				case answered:
					return hold(f)
				}
				return always(deferralOf(100*us), model.PurposeCost)(f)
			}, nil)
			b.run(3, same(steady()))
			b.run(1, same(window{packets: 40_000, cost: 15 * us, delay: 400 * us}))
			b.wantState(deferralOf(50 * us))
			b.wantEntry("trial", model.VerdictAborted, "load rose to 40000 packets/s while")
			b.run(4, func(_ model.Queue, s model.Settings) window {
				w := window{packets: 40_000, cost: 15 * us, delay: 400 * us}
				if s == deferralOf(50*us) {
					w.delay = tc.after
				}
				return w
			})
			b.wantState(tc.want)
		})
	}
}
