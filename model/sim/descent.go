package sim

import (
	"context"
	"fmt"
	"slices"

	"gonum.org/v1/gonum/optimize"
)

// descend measures, each round, how every residual answers to every parameter,
// minimises the loss of that linear model within a trust region by BFGS
// (gonum/optimize), and keeps the step if the simulator agrees that it is
// better; a few more steps follow on the slopes as those steps corrected them.
func (o *FitOptions) descend(ctx context.Context) (*Preset, error) {
	n := len(o.Parameters)
	x := o.units()
	if err := o.weigh(ctx, x); err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	best, err := o.residuals(ctx, x)
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	radius, idle := 0.12, 0
	for round := range o.Rounds {
		if o.Progress != nil {
			o.Progress(round, robust(best), o.preset(x))
		}
		slopes, err := o.slopes(ctx, x, best)
		if err != nil {
			return nil, fmt.Errorf("fit: %w", err)
		}
		improved := false
		for range 6 {
			step, err := linearStep(best, slopes, radius)
			if err != nil {
				return nil, fmt.Errorf("fit, round %d: %w", round, err)
			}
			next := make([]float64, n)
			for i := range next {
				next[i] = min(max(x[i]+step[i], 0), 1)
				step[i] = next[i] - x[i]
			}
			r, err := o.residuals(ctx, next)
			if err != nil {
				return nil, fmt.Errorf("fit: %w", err)
			}
			broyden(slopes, best, r, step)
			if robust(r) < robust(best) {
				x, best, improved = next, r, true
				radius = min(radius*1.2, 0.25)
			} else {
				radius *= 0.5
			}
		}
		// Slopes are noisy: give new ones a chance before giving up.
		radius = max(radius, 0.05)
		if improved {
			idle = 0
		} else if idle++; idle == 2 {
			break
		}
	}
	if o.Progress != nil {
		o.Progress(o.Rounds, robust(best), o.preset(x))
	}
	return o.preset(x), nil
}

// slopes returns the residuals' derivatives by forward differences, a row per
// parameter.
func (o *FitOptions) slopes(ctx context.Context, x, at []float64) ([][]float64, error) {
	const h = 0.05
	rows := make([][]float64, len(x))
	for i := range x {
		moved := slices.Clone(x)
		step := h
		if moved[i]+h > 1 {
			step = -h
		}
		moved[i] += step
		r, err := o.residuals(ctx, moved)
		if err != nil {
			return nil, err
		}
		for j := range r {
			r[j] = (r[j] - at[j]) / step
		}
		rows[i] = r
	}
	return rows, nil
}

// linearStep minimises the robust loss of residuals + slopes x step, with a
// penalty that keeps the step near the radius or below.
func linearStep(residuals []float64, slopes [][]float64, radius float64) ([]float64, error) {
	predict := func(step, out []float64) {
		copy(out, residuals)
		for i, s := range step {
			for j, slope := range slopes[i] {
				out[j] += s * slope
			}
		}
	}
	out := make([]float64, len(residuals))
	weight := 0.05 * float64(len(residuals)) / (radius * radius * float64(len(slopes)))
	problem := optimize.Problem{
		Func: func(step []float64) float64 {
			predict(step, out)
			total := robust(out) * float64(len(out))
			for _, s := range step {
				total += weight * s * s
			}
			return total
		},
		Grad: func(gradient, step []float64) {
			predict(step, out)
			for i := range gradient {
				gradient[i] = 2 * weight * step[i]
				for j, e := range out {
					gradient[i] += 2 * e / (1 + e*e) * slopes[i][j]
				}
			}
		},
	}
	result, err := optimize.Minimize(problem, make([]float64, len(slopes)), &optimize.Settings{
		MajorIterations: 200, Concurrent: 1,
	}, &optimize.BFGS{})
	if result == nil {
		return nil, fmt.Errorf("minimise the linear model: %w", err)
	}
	// A line search that ends early still leaves the best point found.
	return result.X, nil
}

// broyden corrects the slopes by what a step from residuals before to after
// has shown (Broyden's rank-one update).
func broyden(slopes [][]float64, before, after, step []float64) {
	length := 0.0
	for _, s := range step {
		length += s * s
	}
	if length == 0 {
		return
	}
	for j := range before {
		surprise := after[j] - before[j]
		for i, s := range step {
			surprise -= slopes[i][j] * s
		}
		for i, s := range step {
			slopes[i][j] += surprise * s / length
		}
	}
}
