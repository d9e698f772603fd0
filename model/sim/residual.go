package sim

import (
	"context"
	"math"
	"runtime"
	"time"

	"autotune/model"
)

// noiseRuns is from how many runs the residuals' own noise is estimated.
const noiseRuns = 4

// residuals simulates the observations with parameters x and returns the
// errors, in units of tolerance.
func (o *FitOptions) residuals(ctx context.Context, x []float64) ([]float64, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := o.preset(x)
	jobs := make([]Options, len(o.Observations))
	for i, observation := range o.Observations {
		jobs[i] = o.job(p, observation)
	}
	results := make([]Result, len(jobs))
	workers := o.Workers
	if workers == 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	if err := runAll(ctx, jobs, workers, nil, func(i int, r Result) { results[i] = r }); err != nil {
		return nil, err
	}
	var out []float64
	for i, observation := range o.Observations {
		for _, q := range observation.Quantities {
			e := logError(q.Of(&results[i]), q.Want) / q.Tolerance
			if o.weights != nil {
				e *= o.weights[len(out)]
			}
			out = append(out, e)
		}
	}
	return out, nil
}

// job is one evaluation of an observation. Fewer requests need more time for
// the same confidence, and moderation that adapts needs time to visit its
// profiles.
func (o *FitOptions) job(p *Preset, observation Observation) Options {
	span := o.Span
	if rate, ok := observation.Load.(Constant); ok {
		perQueue := float64(rate) / float64(p.Host.Queues)
		span = time.Duration(float64(span) * min(max(75e3/perQueue, 0.5), 3))
	}
	if p.NIC.AdaptiveRx && observation.Case.NAPI.Mode() == model.ModeInterrupts {
		span *= 10
	}
	return Options{
		Preset: p, Case: observation.Case, Load: observation.Load, Seed: o.Seed,
		Duration: span, Warmup: span / 2, Workers: 1,
	}
}

// weigh finds how much each residual varies between seeds, and makes it count
// in units of its tolerance and that noise together: what a cell's short run
// cannot tell must not lead the search.
func (o *FitOptions) weigh(ctx context.Context, x []float64) error {
	o.weights = nil
	seed := o.Seed
	defer func() { o.Seed = seed }()
	var sum, square []float64
	for range noiseRuns {
		o.Seed = mix64(o.Seed + goldenGamma)
		r, err := o.residuals(ctx, x)
		if err != nil {
			return err
		}
		if sum == nil {
			sum, square = make([]float64, len(r)), make([]float64, len(r))
		}
		for j, e := range r {
			sum[j] += e
			square[j] += e * e
		}
	}
	weights := make([]float64, len(sum))
	for j := range weights {
		variance := max(0, square[j]-sum[j]*sum[j]/noiseRuns) / (noiseRuns - 1)
		weights[j] = 1 / math.Sqrt(1+variance)
	}
	o.weights = weights
	return nil
}

// robust is the mean of log(1 + e^2).
func robust(residuals []float64) float64 {
	total := 0.0
	for _, e := range residuals {
		total += math.Log1p(e * e)
	}
	return total / float64(len(residuals))
}
