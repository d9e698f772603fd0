package sim

import (
	"context"
	"fmt"
	"slices"
)

// CrossFold is one fold of a leave-one-load-out validation.
type CrossFold struct {
	// Load was predicted by a fit on the other loads.
	Load      string
	Predicted []Cell
	Errors    []ColumnError
	Preset    *Preset
}

// Cross fits once per load of o.Cells, on the cells of the other loads, and
// predicts the load that was left out.
func Cross(ctx context.Context, o FitOptions) ([]CrossFold, error) {
	var loads []string
	for _, c := range o.Cells {
		if !slices.Contains(loads, c.Load) {
			loads = append(loads, c.Load)
		}
	}
	if len(loads) < 2 {
		return nil, fmt.Errorf("cross-validation needs at least two loads, the table has %v: %w", loads, ErrBadTable)
	}
	var folds []CrossFold
	for _, load := range loads {
		fold := o
		fold.Cells = slices.DeleteFunc(slices.Clone(o.Cells), func(c Cell) bool { return c.Load == load })
		p, err := Fit(ctx, fold)
		if err != nil {
			return nil, fmt.Errorf("without %s: %w", load, err)
		}
		left := slices.DeleteFunc(slices.Clone(o.Cells), func(c Cell) bool { return c.Load != load })
		var cases []string
		for _, c := range left {
			cases = append(cases, c.Case)
		}
		rows, err := Table(ctx, TableOptions{
			Preset: p, Cases: cases, Loads: []string{load}, Seed: o.Seed + 1, Workers: o.Workers,
		})
		if err != nil {
			return nil, err
		}
		predicted := Cells(rows)
		folds = append(folds, CrossFold{Load: load, Predicted: predicted, Errors: Errors(predicted, left), Preset: p})
	}
	return folds, nil
}
