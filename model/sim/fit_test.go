package sim

import (
	"bytes"
	"context"
	"flag"
	"math"
	"slices"
	"testing"
	"time"

	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

var wholeFit = flag.Bool("whole-fit", false, "repeat the fit of the shipped preset, which takes minutes")

// steadyFit is the part of the shipped preset's fit that has slopes, from
// start: cells that timers and applications drive, in so little simulated time
// that a round takes seconds.
func steadyFit(t *testing.T, start *Preset, loss *[]float64) FitOptions {
	t.Helper()
	o := FitOptions{
		Start: start, Cells: published(t), Parameters: Parameters(), Rounds: 1, Span: 6 * time.Millisecond, Seed: 11,
		Progress: func(_ int, l float64, _ *Preset) { *loss = append(*loss, l) },
	}
	observations, err := o.observations()
	if err != nil {
		t.Fatal(err)
	}
	o.Observations = slices.DeleteFunc(observations, func(ob Observation) bool {
		return ob.Case.NAPI.Mode() == model.ModeInterrupts
	})
	o.Cells = nil
	o.Parameters = slices.DeleteFunc(o.Parameters, func(p Parameter) bool { return p.moderation })
	return o
}

// TestShippedPresetIsWhereTheFitEnds takes one more step of the fit from the
// shipped preset: it must find next to nothing, and much where a cost is off.
func TestShippedPresetIsWhereTheFitEnds(t *testing.T) {
	gain := func(p *Preset, parameters int) float64 {
		t.Helper()
		var loss []float64
		o := steadyFit(t, p, &loss)
		o.Parameters = o.Parameters[:min(parameters, len(o.Parameters))]
		if _, err := o.descend(context.Background()); err != nil {
			t.Fatal(err)
		}
		t.Logf("loss %.4f, after a step %.4f", loss[0], loss[1])
		return 1 - loss[1]/loss[0]
	}
	shipped := mustPreset(t, DefaultPreset)
	if g := gain(shipped, math.MaxInt); g > 0.15 {
		t.Errorf("a step of the fit takes %.0f%% off the loss of the shipped preset, want at most 15%%", 100*g)
	}
	shipped.Cost.RequestSystem = shipped.Cost.RequestSystem * 3 / 2
	if g := gain(shipped, 6); g < 0.15 {
		t.Errorf("a step takes %.0f%% off where requests cost half as much again in the system, want at least 15%%", 100*g)
	}
}

// TestFitRepeats repeats the whole fit of the shipped preset, with
// -whole-fit: the same start and seed give the same bytes. The counters that it
// is fitted to as well are not part of the project.
func TestFitRepeats(t *testing.T) {
	if !*wholeFit {
		t.Skip("asked for with -whole-fit: it takes minutes")
	}
	counters, err := ReadCounters(shared(t, "irqsuspend_v6_summary_calibration.csv"))
	if err != nil {
		t.Fatal(err)
	}
	fitted, err := Fit(context.Background(), FitOptions{
		Start: mustPreset(t, "../../testdata/epyc7662-cx5-start.json"), Cells: published(t), Counters: counters,
		Rounds: 2, Span: 30 * time.Millisecond, Seed: 11,
		Progress: func(round int, loss float64, _ *Preset) { t.Logf("round %d: loss %.4f", round, loss) },
	})
	if err != nil {
		t.Fatal(err)
	}
	want := mustPreset(t, DefaultPreset)
	// How NAPIs follow threads was set by hand after the fit, and what suspending
	// takes.
	fitted.Cost.Suspend = want.Cost.Suspend
	fitted.NIC.AffinityBound = want.NIC.AffinityBound
	fitted.Scheduling.Hold, fitted.Scheduling.CatchUp = want.Scheduling.Hold, want.Scheduling.CatchUp
	fitted.Name, fitted.About = want.Name, want.About
	var got, shipped bytes.Buffer
	if err := fitted.Write(&got); err != nil {
		t.Fatal(err)
	}
	if err := want.Write(&shipped); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(shipped.String(), got.String()); diff != "" {
		t.Errorf("the fit gives another preset (-shipped +fitted):\n%s", diff)
	}
}

// A parameter that the search leaves alone must not lose its last bits: they
// would be another preset's.
func TestUnmovedParametersKeepTheirBits(t *testing.T) {
	start := mustPreset(t, "../../testdata/epyc7662-cx5-start.json")
	o := FitOptions{Start: start, Parameters: Parameters()}
	if diff := cmp.Diff(start, o.preset(o.units())); diff != "" {
		t.Errorf("a fit that moves nothing gives another preset (-start +got):\n%s", diff)
	}
}
