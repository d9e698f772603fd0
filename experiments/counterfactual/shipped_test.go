package counterfactual

import (
	"context"
	"math"
	"testing"

	"autotune/model/sim"
	"autotune/probe/trace"
)

// The shipped veth preset is what a fit makes of a recording of the bed under
// four settings at two loads, none of which the check of predictions measures.
func TestTheVethPresetIsWhatAFitToItsRecordingGives(t *testing.T) {
	start, err := sim.LoadPreset("testdata/veth/start.json")
	if err != nil {
		t.Fatal(err)
	}
	reader, err := trace.Open("testdata/veth/recording.trace.zst", trace.ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	r, err := Read(context.Background(), reader, false)
	if err != nil {
		t.Fatal(err)
	}
	fitted, err := Fit(context.Background(), r, FitOptions{Start: start, Seed: 1})
	if err != nil {
		t.Fatal(err)
	}
	shipped := vethPreset(t)
	for _, p := range parameters(1) {
		got, want := float64(*p.of(fitted.Best())), float64(*p.of(shipped))
		// The shipped values have two digits.
		if math.Abs(got-want) > 0.1*want {
			t.Errorf("%s: the fit gives %.0f, shipped is %.0f", p.name, got, want)
		}
	}
	for _, regime := range fitted.Regimes {
		for _, q := range regime.Measured {
			// The median of a busy cell lies on the edge between what the
			// application finds at once and what the timer finds late.
			if q.Name == "p50" {
				continue
			}
			if off := math.Abs(q.Fitted/q.Measured - 1); off > 0.25 {
				t.Errorf("%v at %.0f/s: %s is %.3g, measured %.3g", regime.Settings, regime.RequestsPerSecond, q.Name, q.Fitted, q.Measured)
			}
		}
	}
}
