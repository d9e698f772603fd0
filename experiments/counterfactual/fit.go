package counterfactual

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/mat"

	"autotune/model/sim"
)

// FitOptions says how to fit a simulated host to a recording.
type FitOptions struct {
	// Start is the host before the recording is looked at; its costs are the
	// prior. It must be set.
	Start *sim.Preset
	// Doubt scales how far the costs may lie from those of Start: 1 where it is
	// of another kind of machine, less where it was fitted to one like the
	// recorded. Zero is 1.
	Doubt float64
	// Rounds is the number of Gauss-Newton steps; zero is 6.
	Rounds int
	// Requests is how many requests are simulated for each regime; zero is
	// 6,000.
	Requests int
	Seed     uint64
	// Workers is the number of goroutines; zero is one per usable CPU.
	Workers int
	// Progress, when not nil, is told the loss before each round.
	Progress func(round, rounds int, loss float64)
}

// KnownKind is the doubt where the preset was fitted to a machine like the
// recorded one: costs then differ by about a quarter.
const KnownKind = 0.5

const (
	// leastRequests is what a regime needs for its p90 to mean something.
	leastRequests   = 500
	mostRegimes     = 8
	differenceStep  = 0.12
	defaultRounds   = 6
	defaultRequests = 6000
)

// Fit moves the costs of o.Start until the simulated host behaves, regime by
// regime, as the recorded one: median and p90 of the delay, CPU time per request
// of NAPI and application, polls and returns of epoll_wait per request. Costs
// that the recording cannot tell apart stay near the start and keep its
// uncertainty. Where no single events were recorded, and polls brought more packets
// than requests at random would, it fits bursts too, and keeps them where they
// explain more.
//
// The method is Gauss-Newton on logarithms with a normal prior, damped as by
// Levenberg and Marquardt; the covariance is the inverse of the Hessian of that
// approximation. The simulator's random numbers are the same in every
// evaluation.
func Fit(ctx context.Context, r *Recording, o FitOptions) (*Fitted, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if o.Start == nil {
		return nil, errors.New("fit: no preset to start from")
	}
	if o.Rounds == 0 {
		o.Rounds = defaultRounds
	}
	if o.Requests == 0 {
		o.Requests = defaultRequests
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Doubt == 0 {
		o.Doubt = 1
	}
	f := &fitter{options: o, parameters: parameters(o.Doubt), start: Candidate{Preset: r.Host(o.Start, 1)}}
	if n := r.service.Count(); n > 0 {
		// The read and the write that bound the service are part of it.
		f.start.Preset.Cost.RequestUser = max(least, r.service.Quantile(0.5)*6/10)
		f.start.Preset.Cost.RequestSystem = max(least, r.service.Quantile(0.5)*6/10)
	}
	r.services.vary(&f.start.Preset.Cost)
	f.targets = r.targets(o.Requests)
	if len(f.targets) == 0 {
		return nil, fmt.Errorf("%w enough of any setting at any load: %d requests are needed", ErrNothingMeasured, leastRequests)
	}
	fitted, err := f.fit(ctx)
	if err != nil {
		return nil, err
	}
	return f.withBursts(ctx, fitted, r)
}

// Host returns the preset in the shape of the recorded host, with as many
// queues.
func (r *Recording) Host(start *sim.Preset, queues int) *sim.Preset {
	p := *start
	perQueue := r.connections(start)
	p.Host.Queues = queues
	p.Host.Connections = perQueue * queues
	p.Host.ThreadedNAPI = r.threaded > r.softirq
	p.Host.Imbalance = 0
	p.Client.ACKShare = min(max(r.PacketsPerRequest()-1, 0), 1)
	return &p
}

// connections returns how many there are for each queue: those of the preset, or
// as many as requests were seen under way at once.
func (r *Recording) connections(start *sim.Preset) int {
	r.settle()
	return max(1, start.Host.Connections/start.Host.Queues, r.concurrent)
}

type fitter struct {
	options    FitOptions
	parameters []parameter
	start      Candidate
	targets    []target
	// counts is what the counts of windows say of bursts; nil where nothing.
	counts *dispersion
}

func (f *fitter) fit(ctx context.Context) (*Fitted, error) {
	return f.descend(ctx, f.prior(), f.prior())
}

// prior is what the parameters are at the start.
func (f *fitter) prior() []float64 {
	x := make([]float64, len(f.parameters))
	for i, p := range f.parameters {
		x[i] = p.value(&f.start)
	}
	return x
}

// descend goes downhill from x.
func (f *fitter) descend(ctx context.Context, prior, x []float64) (*Fitted, error) {
	n := len(x)
	at, err := f.residuals(ctx, x)
	if err != nil {
		return nil, err
	}
	damping := 1.0
	var hessian *mat.SymDense
	for round := range f.options.Rounds {
		if f.options.Progress != nil {
			f.options.Progress(round, f.options.Rounds, f.loss(at, x, prior))
		}
		slopes, err := f.slopes(ctx, x, at)
		if err != nil {
			return nil, err
		}
		var gradient []float64
		hessian, gradient = f.normal(slopes, at, x, prior)
		for range 4 {
			step, err := solve(hessian, gradient, damping)
			if err != nil {
				return nil, fmt.Errorf("fit, round %d: %w", round, err)
			}
			next := make([]float64, n)
			for i := range next {
				next[i] = x[i] - min(max(step[i], -1), 1)
			}
			r, err := f.residuals(ctx, next)
			if err != nil {
				return nil, err
			}
			if f.loss(r, next, prior) < f.loss(at, x, prior) {
				x, at = next, r
				damping = max(damping/4, 1e-3)
				break
			}
			damping *= 4
		}
	}
	slopes, err := f.slopes(ctx, x, at)
	if err != nil {
		return nil, err
	}
	hessian, _ = f.normal(slopes, at, x, prior)
	out, err := f.fitted(ctx, x, hessian, at)
	if err == nil {
		out.loss = f.loss(at, x, prior)
	}
	return out, err
}

func (f *fitter) fitted(ctx context.Context, x []float64, hessian *mat.SymDense, at []float64) (*Fitted, error) {
	// Where the host cannot be met within the tolerances, they were too small:
	// the model's error is part of what is uncertain. That takes from what the
	// recording says, and not from what was believed before.
	misfit := 0.0
	for _, e := range at {
		misfit += e * e * trust(e)
	}
	misfit = max(1, misfit/float64(len(at)))
	n := len(x)
	precision := mat.NewSymDense(n, nil)
	for i, p := range f.parameters {
		for j := range i + 1 {
			prior := 0.0
			if i == j {
				prior = 1 / (p.spread * p.spread)
			}
			precision.SetSym(i, j, (hessian.At(i, j)-prior)/misfit+prior)
		}
	}
	var cholesky mat.Cholesky
	if !cholesky.Factorize(precision) {
		return nil, errors.New("fit: the curvature at the best fit is not positive")
	}
	var covariance mat.SymDense
	if err := cholesky.InverseTo(&covariance); err != nil {
		return nil, fmt.Errorf("fit: invert the curvature: %w", err)
	}
	out := &Fitted{best: f.candidate(x), parameters: f.parameters, mean: x, deviation: make([]float64, n)}
	for i := range n {
		out.deviation[i] = math.Sqrt(covariance.At(i, i))
	}
	if !cholesky.Factorize(&covariance) {
		return nil, errors.New("fit: the covariance is not positive")
	}
	out.factor = mat.NewTriDense(n, mat.Lower, nil)
	cholesky.LTo(out.factor)
	results, err := f.simulate(ctx, x)
	if err != nil {
		return nil, err
	}
	for i, t := range f.targets {
		r := Regime{Settings: t.settings, RequestsPerSecond: t.rate, Windows: t.windows}
		for _, q := range t.quantities {
			r.Measured = append(r.Measured, Quantity{Name: q.name, Measured: q.want, Fitted: q.value(results[i].regime, results[i].packetsPerRequest)})
		}
		out.Regimes = append(out.Regimes, r)
	}
	return out, nil
}

// outlying is the error, in units of tolerance, beyond which a quantity has ever
// less of a say (Cauchy's loss): what the model cannot follow, or the recording
// has from a moment that was not like the rest, must not bend everything else.
const outlying = 3.0

// trust is the weight of a quantity whose error is e.
func trust(e float64) float64 { return 1 / (1 + e*e/(outlying*outlying)) }

// loss is that of the fit: errors in units of tolerance, and squared distances
// from the prior in units of its deviation.
func (f *fitter) loss(residuals, x, prior []float64) float64 {
	total := 0.0
	for _, e := range residuals {
		total += outlying * outlying * math.Log1p(e*e/(outlying*outlying))
	}
	for i, p := range f.parameters {
		z := (x[i] - prior[i]) / p.spread
		total += z * z
	}
	return total
}

// normal returns half the Hessian and half the gradient of the loss, in the
// approximation of Gauss and Newton.
func (f *fitter) normal(slopes [][]float64, residuals, x, prior []float64) (*mat.SymDense, []float64) {
	n := len(x)
	hessian := mat.NewSymDense(n, nil)
	gradient := make([]float64, n)
	for i := range n {
		spread := f.parameters[i].spread
		for j := range i + 1 {
			total := 0.0
			for k := range residuals {
				total += slopes[i][k] * slopes[j][k] * trust(residuals[k])
			}
			if i == j {
				total += 1 / (spread * spread)
			}
			hessian.SetSym(i, j, total)
		}
		for k, e := range residuals {
			gradient[i] += slopes[i][k] * e * trust(e)
		}
		gradient[i] += (x[i] - prior[i]) / (spread * spread)
	}
	return hessian, gradient
}

// solve returns the damped Newton step.
func solve(hessian *mat.SymDense, gradient []float64, damping float64) ([]float64, error) {
	n := len(gradient)
	damped := mat.NewSymDense(n, nil)
	damped.CopySym(hessian)
	for i := range n {
		damped.SetSym(i, i, hessian.At(i, i)*(1+damping))
	}
	var cholesky mat.Cholesky
	if !cholesky.Factorize(damped) {
		return nil, errors.New("the curvature is not positive")
	}
	var step mat.VecDense
	if err := cholesky.SolveVecTo(&step, mat.NewVecDense(n, gradient)); err != nil {
		return nil, err
	}
	return step.RawVector().Data, nil
}

// slopes returns the derivatives of the residuals, a row per parameter.
func (f *fitter) slopes(ctx context.Context, x, at []float64) ([][]float64, error) {
	rows := make([][]float64, len(x))
	for i := range x {
		moved := slices.Clone(x)
		moved[i] += differenceStep
		r, err := f.residuals(ctx, moved)
		if err != nil {
			return nil, err
		}
		for k := range r {
			r[k] = (r[k] - at[k]) / differenceStep
		}
		rows[i] = r
	}
	return rows, nil
}

func (f *fitter) candidate(x []float64) Candidate {
	c := f.start.copied()
	for i, parameter := range f.parameters {
		parameter.set(&c, x[i])
	}
	return c
}

// residuals returns the errors of all quantities in units of tolerance.
func (f *fitter) residuals(ctx context.Context, x []float64) ([]float64, error) {
	results, err := f.simulate(ctx, x)
	if err != nil {
		return nil, err
	}
	var out []float64
	for i, t := range f.targets {
		for _, q := range t.quantities {
			got := q.value(results[i].regime, results[i].packetsPerRequest)
			if !(got > 0) {
				got = 1e-3 * q.want
			}
			out = append(out, math.Log(got/q.want)/q.tolerance)
		}
	}
	if f.counts != nil {
		out = append(out, f.counts.residual(f.candidate(x).Bursts))
	}
	return out, nil
}

// simulate runs the regimes, each on a queue of its own.
func (f *fitter) simulate(ctx context.Context, x []float64) ([]simulated, error) {
	c := f.candidate(x)
	out := make([]simulated, len(f.targets))
	errs := make([]error, len(f.targets))
	var wait sync.WaitGroup
	free := make(chan struct{}, f.options.Workers)
	for i, t := range f.targets {
		wait.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			out[i], errs[i] = f.one(ctx, c, t)
		})
	}
	wait.Wait()
	return out, errors.Join(errs...)
}

// simulated is what a simulated host did in a regime.
type simulated struct {
	*regime
	packetsPerRequest float64
}

func (f *fitter) one(ctx context.Context, c Candidate, t target) (simulated, error) {
	span := time.Duration(float64(f.options.Requests) / t.rate * float64(time.Second))
	o := sim.Options{
		Preset: c.Preset, Case: sim.Case{NAPI: t.settings, Wait: t.wait}, Load: sim.Constant(t.rate), Seed: f.options.Seed,
		Window: span, Duration: span, Warmup: span / 20, Workers: 1,
	}
	if t.load != nil {
		o.Load, o.Window, o.Duration, o.Warmup = t.load, t.span, t.span, 0
	}
	if t.load == nil && !c.Bursts.AtRandom() {
		o.Load, o.Warmup = c.Bursts.load(t.rate, span, f.options.Seed), 0
	}
	s, err := sim.New(o)
	if err != nil {
		return simulated{}, err
	}
	sample, err := s.Next(ctx)
	if err != nil {
		return simulated{}, err
	}
	var r Recording
	r.Add(&sample)
	for _, g := range r.regimes {
		return simulated{g, r.PacketsPerRequest()}, nil
	}
	return simulated{}, fmt.Errorf("fit: nothing came of %v at %.0f requests/s", t.settings, t.rate)
}
