package counterfactual

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/model/sim"
	"autotune/tuner"
)

// drawnRun is a simulated run of a policy through the loop, whose applied
// decisions become choices.
type drawnRun struct {
	t       *testing.T
	source  *sim.Simulator
	choices Choices
	target  model.Settings
	applied int
}

// Next implements [tuner.Source].
func (d *drawnRun) Next(ctx context.Context) (model.Sample, error) {
	s, err := d.source.Next(ctx)
	if err == nil {
		d.choices.Add(&s)
	}
	return s, err
}

// Record implements [tuner.Journal].
func (d *drawnRun) Record(e tuner.Entry) error {
	if e.Verdict != model.VerdictApplied {
		return nil
	}
	d.applied++
	propensity := 0.0
	if e.Propensity != nil && e.To == e.Proposed {
		propensity = *e.Propensity
	}
	d.choices.Decide(e.Queue, e.Evidence.PacketRate, e.To, propensity, d.target)
	return nil
}

const (
	drawnWindow  = 50 * time.Millisecond
	drawnWindows = 2400
)

var drawnObjective = model.Objective{SLO: 60 * time.Microsecond, Quantile: 0.9}

// newDrawnHost is a host whose load goes up and down.
func newDrawnHost(t *testing.T, seed uint64) *sim.Simulator {
	t.Helper()
	load := sim.Windows{Each: 37 * drawnWindow, PerSecond: [][]float64{nil}}
	for i := range drawnWindows/37 + 1 {
		load.PerSecond[0] = append(load.PerSecond[0], []float64{4000, 12000}[i%2])
	}
	s, err := sim.New(sim.Options{
		Preset: vethPreset(t), Load: load, Seed: seed, Window: drawnWindow, Duration: drawnWindows * drawnWindow,
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func runDrawn(t *testing.T, spec string, target model.Settings) *drawnRun {
	t.Helper()
	p, err := policy.Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	d := &drawnRun{t: t, source: newDrawnHost(t, 1), choices: Choices{Objective: drawnObjective}, target: target}
	loop, err := tuner.New(tuner.Options{Source: d, Actuator: d.source, Policy: p, Journal: d, Objective: drawnObjective})
	if err != nil {
		t.Fatal(err)
	}
	if err := loop.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d
}

// settled is what a host comes to under one setting, with the standard errors of
// a mean over choices of as many windows as those drawn have.
func settled(t *testing.T, settings model.Settings, every int) (Result, Result) {
	t.Helper()
	s := newDrawnHost(t, 2)
	q := sim.SimulatedQueue(0)
	if _, err := s.Apply(t.Context(), model.Config{q: settings}); err != nil {
		t.Fatal(err)
	}
	c := Choices{Objective: drawnObjective}
	for w := 0; ; w++ {
		sample, err := s.Next(t.Context())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		c.Add(&sample)
		if w%every == 0 {
			c.Decide(q, 1, settings, 1, settings)
		}
	}
	e, err := OffPolicy(c.List())
	if err != nil {
		t.Fatal(err)
	}
	return e.Weighted, e.Error
}

// What a run that draws its settings tells of a setting is what the host does
// under that setting.
func TestOffPolicyAgreesWithSimulatingTheTarget(t *testing.T) {
	const every = 4
	for _, flush := range []time.Duration{0, 20 * time.Microsecond, 50 * time.Microsecond} {
		t.Run(flush.String(), func(t *testing.T) {
			target := deferring(flush)
			if flush > 0 {
				target.DeferHardIRQs = 100
			}
			d := runDrawn(t, "random:max=50us,step=2.5,every=4", target)
			e, err := OffPolicy(d.choices.List())
			if err != nil {
				t.Fatal(err)
			}
			want, deviation := settled(t, target, every)
			for name, c := range map[string]struct{ weighted, robust, err, want, wantErr float64 }{
				"CPU":        {e.Weighted.CPUPerPacketUs, e.DoublyRobust.CPUPerPacketUs, e.Error.CPUPerPacketUs, want.CPUPerPacketUs, deviation.CPUPerPacketUs},
				"delay":      {e.Weighted.DelayUs, e.DoublyRobust.DelayUs, e.Error.DelayUs, want.DelayUs, deviation.DelayUs},
				"violations": {e.Weighted.Violating, e.DoublyRobust.Violating, e.Error.Violating, want.Violating, deviation.Violating},
			} {
				// What never varies has no error but the regression's.
				within := 3*math.Hypot(c.err, c.wantErr) + 2e-3
				t.Logf("%s: weighted %.4g, doubly robust %.4g, simulated %.4g, within %.2g; %d of %d", name, c.weighted, c.robust, c.want, within, e.Matched, e.Choices)
				if math.Abs(c.weighted-c.want) > within {
					t.Errorf("%s: the weighted estimate is %.4g, want %.4g within %.2g", name, c.weighted, c.want, within)
				}
				if math.Abs(c.robust-c.want) > within {
					t.Errorf("%s: the doubly robust estimate is %.4g, want %.4g within %.2g", name, c.robust, c.want, within)
				}
			}
		})
	}
}

// The guards let so few draws through that there is nothing to estimate from,
// and that is said.
func TestOffPolicyRefusesADrawnRunThatTheGuardsKeptFromDrawing(t *testing.T) {
	target := model.Settings{DeferHardIRQs: 100, GROFlushTimeout: 50 * time.Microsecond}
	d := runDrawn(t, "random:max=50us,step=2.5", target)
	e, err := OffPolicy(d.choices.List())
	if !errors.Is(err, ErrTooFew) && !errors.Is(err, ErrDeterministic) {
		t.Errorf("an estimate %+v (%v) from %d moves", e, err, d.applied)
	}
	t.Logf("%d moves: %v", d.applied, err)
}
