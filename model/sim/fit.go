package sim

import (
	"context"
	"fmt"
	"slices"
	"time"

	"autotune/model"
)

// FitOptions says how to fit.
type FitOptions struct {
	// Start is where the search begins.
	Start *Preset
	// Cells are measurements in the published table's form, and Observations
	// any others.
	Cells        []Cell
	Observations []Observation
	// Counters, optional, are mechanism counters of the same cells.
	Counters []Counters
	// Parameters are what is moved; nil is all of [Parameters].
	Parameters []Parameter
	// Rounds is the number of linearisations; zero is 8.
	Rounds int
	// Span is the simulated time per cell; zero is 100 ms.
	Span time.Duration
	Seed uint64
	// Workers is the number of goroutines; zero is one per usable CPU.
	Workers int
	// Progress, when not nil, is told the best loss after each round.
	Progress func(round int, loss float64, best *Preset)

	weights []float64 // of the residuals, nil for 1
}

// Fit moves the parameters so that simulated cells come close to the measured
// ones. The loss counts errors in units of each column's tolerance and of the
// cell's own noise, and grows only logarithmically, so that no single cell
// rules. The simulator's random numbers are the same in every evaluation; the
// same seed gives the same preset.
//
// Where moderation adapts, the cells that interrupts drive are chaotic: they
// tell little of costs and have no useful slopes. So costs are fitted to the
// other cells ([FitOptions.descend]), and then what matters most to interrupts
// to these ([FitOptions.climb]).
func Fit(ctx context.Context, o FitOptions) (*Preset, error) {
	observations, err := o.observations()
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	if len(observations) == 0 {
		return nil, fmt.Errorf("fit: no measurements: %w", ErrBadTable)
	}
	o.Observations, o.Cells = observations, nil
	if o.Parameters == nil {
		o.Parameters = Parameters()
	}
	if o.Rounds == 0 {
		o.Rounds = 8
	}
	if o.Span == 0 {
		o.Span = 100 * time.Millisecond
	}
	if !o.Start.NIC.AdaptiveRx {
		return o.descend(ctx)
	}
	driven := func(observation Observation) bool { return observation.Case.NAPI.Mode() == model.ModeInterrupts }
	steady, chaotic := o, o
	steady.Observations = slices.DeleteFunc(slices.Clone(o.Observations), driven)
	steady.Parameters = slices.DeleteFunc(slices.Clone(o.Parameters), func(p Parameter) bool { return p.moderation })
	chaotic.Observations = slices.DeleteFunc(slices.Clone(o.Observations), func(ob Observation) bool { return !driven(ob) })
	chaotic.Parameters = slices.DeleteFunc(slices.Clone(o.Parameters), func(p Parameter) bool { return !p.moderation })
	best := o.Start
	if len(steady.Observations) > 0 && len(steady.Parameters) > 0 {
		if best, err = steady.descend(ctx); err != nil {
			return nil, err
		}
	}
	if len(chaotic.Observations) > 0 && len(chaotic.Parameters) > 0 {
		chaotic.Start = best
		if best, err = chaotic.climb(ctx); err != nil {
			return nil, err
		}
	}
	return best, nil
}

// units returns the start's parameters on the search's scale.
func (o *FitOptions) units() []float64 {
	x := make([]float64, len(o.Parameters))
	for i, p := range o.Parameters {
		x[i] = p.unit(p.Value(o.Start))
	}
	return x
}

// preset returns the start with its parameters at x. One that is where it
// started keeps its value to the last bit, which the scale would cost it.
func (o *FitOptions) preset(x []float64) *Preset {
	p := *o.Start
	for i, parameter := range o.Parameters {
		if x[i] == parameter.unit(parameter.Value(o.Start)) {
			continue
		}
		parameter.Set(&p, parameter.fromUnit(min(max(x[i], 0), 1)))
	}
	return &p
}
