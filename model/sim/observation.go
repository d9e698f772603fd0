package sim

import (
	"math"
	"slices"
)

// Observation is a measurement to be fitted: what was seen of one setting at
// one load.
type Observation struct {
	Case       Case
	Load       Load
	Quantities []Quantity
}

// Quantity is one value of an observation.
type Quantity struct {
	Name string
	// Want was measured, Of is the simulated value, and Tolerance is the
	// relative error that costs a fit one unit.
	Want, Tolerance float64
	Of              func(*Result) float64
}

// fitTolerance is the error of a column that costs the fit one unit.
var fitTolerance = [...]float64{0.01, 0.015, 0.02, 0.03, 0.02, 0.015}

// observations returns all measurements in one form.
func (o *FitOptions) observations() ([]Observation, error) {
	out := slices.Clone(o.Observations)
	for _, cell := range o.Cells {
		c, err := CaseByName(cell.Case)
		if err != nil {
			return nil, err
		}
		load, err := ParseLoad(cell.Load)
		if err != nil {
			return nil, err
		}
		observation := Observation{Case: c, Load: load}
		for i, column := range Columns() {
			observation.Quantities = append(observation.Quantities, Quantity{
				Name: column.Name, Want: column.Value(cell), Tolerance: fitTolerance[i],
				Of: func(r *Result) float64 { return column.Value(r.Cell(cell.Load)) },
			})
		}
		for _, counters := range o.Counters {
			if counters.Case == cell.Case && counters.Load == cell.Load {
				observation.Quantities = append(observation.Quantities, counters.quantities()...)
			}
		}
		out = append(out, observation)
	}
	return out, nil
}

func logError(got, want float64) float64 { return math.Log((got + 1e-9) / want) }
