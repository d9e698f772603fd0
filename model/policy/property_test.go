package policy_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"autotune/model"
	"autotune/model/policy"
)

// everyPolicy lists a spec of each kind; from the third on they learn a flush
// timeout of 8 to 200 us.
var everyPolicy = []string{"base", "static:defer=1,flush=5us", "aimd", "random", "ladder", "pi", "linucb", "thompson", "safebo", "greybox:max=200us"}

var verdicts = []model.Verdict{
	"", model.VerdictHeld, model.VerdictApplied, model.VerdictRefused, model.VerdictKept, model.VerdictReverted,
	model.VerdictFailed, model.VerdictAborted, model.VerdictAdvised,
}

func TestEveryKindIsTested(t *testing.T) {
	tested := map[string]bool{}
	for _, spec := range everyPolicy {
		tested[parse(t, spec).Name()] = true
	}
	for _, k := range policy.Kinds() {
		found := false
		for name := range tested {
			found = found || name == k.Name || strings.HasPrefix(name, k.Name+":")
		}
		if !found {
			t.Errorf("%s is in no property test", k.Name)
		}
	}
}

// arbitrary draws features that no host would show.
func arbitrary(t *rapid.T) model.Features {
	number := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, math.NaN(), math.Inf(1), math.Inf(-1), 40_000, 5_000}))
	settings := rapid.Custom(func(t *rapid.T) model.Settings {
		return model.Settings{
			DeferHardIRQs:     rapid.Uint32().Draw(t, "defer"),
			GROFlushTimeout:   time.Duration(rapid.OneOf(rapid.Int64(), rapid.Just(int64(0)), rapid.Int64Range(0, 1e6)).Draw(t, "flush")),
			IRQSuspendTimeout: time.Duration(rapid.OneOf(rapid.Int64(), rapid.Just(int64(0))).Draw(t, "suspend")),
		}
	})
	return model.Features{
		Active: settings.Draw(t, "active"), PacketRate: number.Draw(t, "rate"), RateChange: number.Draw(t, "change"),
		Utilisation: number.Draw(t, "utilisation"), CostPerPacket: time.Duration(rapid.Int64().Draw(t, "cost")),
		Quantile:   time.Duration(rapid.Int64().Draw(t, "quantile")),
		Objective:  model.Objective{SLO: time.Duration(rapid.Int64().Draw(t, "slo")), Quantile: 0.99},
		Suspension: model.Readiness{Ready: rapid.Bool().Draw(t, "ready"), Steered: rapid.Bool().Draw(t, "steered")},
		Outcome: model.Outcome{
			Verdict: rapid.SampledFrom(verdicts).Draw(t, "verdict"), From: settings.Draw(t, "from"), To: settings.Draw(t, "to"),
			CostChange: number.Draw(t, "cost change"),
		},
	}
}

// plausible draws what a host at some setting might show, with the fate of what
// was proposed before.
func plausible(t *rapid.T, active model.Settings, outcome model.Outcome) model.Features {
	f := features(math.Exp(rapid.Float64Range(6, 13).Draw(t, "log rate")), active)
	f.RateChange = rapid.Float64Range(-0.5, 0.5).Draw(t, "change")
	f.Utilisation = rapid.Float64Range(0, 1).Draw(t, "utilisation")
	f.CostPerPacket = time.Duration(rapid.Int64Range(1000, 50_000).Draw(t, "cost"))
	f.Quantile = time.Duration(rapid.Int64Range(10_000, 1_000_000).Draw(t, "quantile"))
	f.Suspension.Ready = rapid.Bool().Draw(t, "ready")
	f.Suspension.Steered = f.Suspension.Ready && rapid.Bool().Draw(t, "steered")
	f.Outcome = outcome
	return f
}

// checkDecision fails unless d is a decision that a host with these features
// can be given.
func checkDecision(t *rapid.T, name string, f model.Features, d model.Decision) {
	t.Helper()
	if d.Why == "" || strings.Contains(d.Why, "\n") {
		t.Fatalf("%s gives the reason %q", name, d.Why)
	}
	if math.IsNaN(d.Propensity) || d.Propensity < 0 || d.Propensity > 1 {
		t.Fatalf("%s gives the propensity %v", name, d.Propensity)
	}
	s := d.Settings
	if d.Purpose == model.PurposeHold {
		if s != f.Active && !strings.HasPrefix(name, "static") {
			t.Fatalf("%s holds %v at %v", name, s, f.Active)
		}
		return
	}
	if err := model.DefaultBounds().Check(s); err != nil {
		t.Fatalf("%s proposes %v: %v", name, s, err)
	}
	if strings.HasPrefix(name, "static") || strings.HasPrefix(name, "aimd") {
		return
	}
	interrupts := s == model.Settings{}
	if !interrupts && (s.GROFlushTimeout < 8*us || s.GROFlushTimeout > 200*us || s.DeferHardIRQs < 5 || s.DeferHardIRQs > 100) {
		t.Fatalf("%s proposes %v", name, s)
	}
	if s.Mode() == model.ModeSuspension && !f.Suspension.Ready || s.BusyPoll != (model.BusyPoll{}) && !f.Suspension.Steered {
		t.Fatalf("%s proposes %v on a queue that is not ready: %+v", name, s, f.Suspension)
	}
	if s.Mode() == model.ModeSuspension && f.Suspension.Steered && !s.BusyPoll.Prefer {
		t.Fatalf("%s suspends without preferring busy polling: %v", name, s)
	}
}

func TestPoliciesSurviveAnyFeatures(t *testing.T) {
	for _, spec := range everyPolicy {
		t.Run(spec, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p, err := policy.Parse(spec)
				if err != nil {
					t.Fatal(err)
				}
				for range rapid.IntRange(1, 10).Draw(t, "windows") {
					f := arbitrary(t)
					d := p.Decide(f)
					if d.Purpose != model.PurposeHold && spec != "aimd" {
						checkDecision(t, spec, f, d)
					}
					if d.Why == "" {
						t.Fatalf("%s gave no reason for %+v", spec, d)
					}
				}
			})
		})
	}
}

func TestPoliciesStayWithinTheirChoicesAndRepeatThemselves(t *testing.T) {
	for _, spec := range everyPolicy {
		t.Run(spec, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				p, err := policy.Parse(spec)
				if err != nil {
					t.Fatal(err)
				}
				again, err := policy.Parse(spec)
				if err != nil {
					t.Fatal(err)
				}
				var active model.Settings
				var outcome model.Outcome
				for range rapid.IntRange(1, 40).Draw(t, "windows") {
					f := plausible(t, active, outcome)
					d := p.Decide(f)
					checkDecision(t, spec, f, d)
					if diff := cmp.Diff(d, again.Decide(f)); diff != "" {
						t.Fatalf("the same windows are decided differently:\n%s", diff)
					}
					outcome = model.Outcome{Verdict: model.VerdictHeld, From: active, To: d.Settings, Purpose: d.Purpose}
					if d.Purpose != model.PurposeHold {
						outcome.Verdict = rapid.SampledFrom(verdicts).Draw(t, "verdict")
						switch outcome.Verdict {
						case model.VerdictApplied, model.VerdictKept:
							active = d.Settings
						case model.VerdictReverted:
							outcome.From, outcome.To = model.Settings{}, active
							active = model.Settings{}
						default:
						}
					}
				}
			})
		})
	}
}
