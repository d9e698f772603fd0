package policy_test

import (
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
)

func TestARandomExperimentOrdersEachDrawForItsWindows(t *testing.T) {
	p, err := policy.Parse("random:max=50us,step=2.5,every=4")
	if err != nil {
		t.Fatal(err)
	}
	if name, want := p.Name(), "random:seed=1,max=50µs,step=2.5,every=4"; name != want {
		t.Errorf("name %q, want %q", name, want)
	}
	if n, ok := p.(interface{ NeedsEvidence() bool }); !ok || n.NeedsEvidence() {
		t.Error("it waits for evidence: what is drawn would depend on what was seen")
	}
	seen := map[time.Duration]int{}
	for range 400 {
		var drawn model.Decision
		for w := range 4 {
			d := p.Decide(model.Features{})
			if w > 0 && d != drawn {
				t.Fatalf("window %d after the draw has %+v, want %+v", w, d, drawn)
			}
			drawn = d
		}
		if drawn.Purpose != model.PurposeOrder || drawn.Propensity != 0.25 {
			t.Fatalf("%+v, want an order with a probability of a quarter", drawn)
		}
		seen[drawn.Settings.GROFlushTimeout]++
	}
	for _, flush := range []time.Duration{0, 8 * time.Microsecond, 20 * time.Microsecond, 50 * time.Microsecond} {
		// 100 expected; a standard deviation is 9.
		if n := seen[flush]; n < 60 || n > 140 {
			t.Errorf("flush %v was drawn %d times of 400, want about 100", flush, n)
		}
	}
	if len(seen) != 4 {
		t.Errorf("%d settings were drawn, want 4: %v", len(seen), seen)
	}
}

func TestARandomPolicyWithoutWindowsWaitsForEvidence(t *testing.T) {
	p, err := policy.Parse("random")
	if err != nil {
		t.Fatal(err)
	}
	if n, ok := p.(interface{ NeedsEvidence() bool }); ok && !n.NeedsEvidence() {
		t.Error("it is asked without evidence, and the guards' tests rest on its being guarded")
	}
	if d := p.Decide(model.Features{}); d.Purpose != model.PurposeExploration {
		t.Errorf("purpose %q, want exploration", d.Purpose)
	}
}
