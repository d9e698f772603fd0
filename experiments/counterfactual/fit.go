package counterfactual

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"gonum.org/v1/gonum/mat"

	"autotune/model"
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

// Fitted is a simulated host and what is left uncertain of it: a normal
// distribution of the logarithms of its costs (Laplace's approximation).
type Fitted struct {
	best       *sim.Preset
	parameters []parameter
	mean       []float64
	factor     *mat.TriDense // lower Cholesky factor of the covariance
	deviation  []float64
	// Regimes compares what was fitted with what was measured.
	Regimes []Regime
}

// Regime is one setting at one load of the recording, and how the fitted host
// compares. Values that were not observed are NaN.
type Regime struct {
	Settings          model.Settings
	RequestsPerSecond float64
	Windows           int
	Measured          []Quantity
}

// Quantity is one measured value of a regime, and the fitted host's.
type Quantity struct {
	Name             string
	Measured, Fitted float64
}

// Told is a parameter and how much the recording told of it.
type Told struct {
	Name  string
	Value time.Duration
	// Factor is the factor within which the parameter is with probability 2/3,
	// and Before the same before the recording was looked at.
	Factor, Before float64
}

// Assumed reports that the recording told next to nothing: the parameter is the
// preset's.
func (t Told) Assumed() bool { return math.Log(t.Factor) > 0.8*math.Log(t.Before) }

// Told lists the parameters.
func (f *Fitted) Told() []Told {
	out := make([]Told, len(f.parameters))
	for i, p := range f.parameters {
		out[i] = Told{
			Name: p.name, Value: *p.of(f.best),
			Factor: math.Exp(f.deviation[i]), Before: math.Exp(p.spread),
		}
	}
	return out
}

// Best returns the most likely host.
func (f *Fitted) Best() *sim.Preset { return f.best }

// Draws returns n hosts from the distribution, the first of which is the most
// likely one.
func (f *Fitted) Draws(n int, seed uint64) []*sim.Preset {
	r := rand.New(rand.NewPCG(seed, 0x0bac))
	out := make([]*sim.Preset, n)
	for k := range out {
		p := *f.best
		out[k] = &p
		if k == 0 {
			continue
		}
		z := make([]float64, len(f.mean))
		for i := range z {
			z[i] = r.NormFloat64()
		}
		for i, parameter := range f.parameters {
			v := f.mean[i]
			for j := range i + 1 {
				v += f.factor.At(i, j) * z[j]
			}
			parameter.set(&p, v)
		}
	}
	return out
}

// KnownKind is the doubt where the preset was fitted to a machine like the
// recorded one: costs then differ by about a quarter.
const KnownKind = 0.5

// The relative errors that cost the fit one unit. They stand for the model's own
// error more than for noise, which windows average away.
const (
	delayTolerance = 0.04
	tailTolerance  = 0.08
	// A histogram's bucket is up to an eighth wide.
	serviceTolerance = 0.03
	costTolerance    = 0.03
	countTolerance   = 0.05
)

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
// uncertainty.
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
	f := &fitter{options: o, parameters: parameters(o.Doubt), start: r.Host(o.Start, 1)}
	if n := r.service.Count(); n > 0 {
		// The read and the write that bound the service are part of it.
		f.start.Cost.RequestUser = max(least, r.service.Quantile(0.5)*6/10)
		f.start.Cost.RequestSystem = max(least, r.service.Quantile(0.5)*6/10)
	}
	f.targets = r.targets()
	if len(f.targets) == 0 {
		return nil, fmt.Errorf("%w enough of any setting at any load: %d requests are needed", ErrNothingMeasured, leastRequests)
	}
	return f.fit(ctx)
}

// Host returns the preset in the shape of the recorded host, with as many
// queues.
func (r *Recording) Host(start *sim.Preset, queues int) *sim.Preset {
	p := *start
	perQueue := max(1, start.Host.Connections/start.Host.Queues)
	p.Host.Queues = queues
	p.Host.Connections = perQueue * queues
	p.Host.ThreadedNAPI = r.threaded > r.softirq
	p.Host.Imbalance = 0
	p.Client.ACKShare = min(max(r.PacketsPerRequest()-1, 0), 1)
	return &p
}

// target is a regime to be met.
type target struct {
	settings   model.Settings
	wait       sim.Wait
	rate       float64 // requests per second of one queue
	windows    int
	quantities []quantity
}

// quantity is a value of a regime that the simulated host is to meet.
type quantity struct {
	name      string
	want      float64
	tolerance float64
	of        func(*row) float32
	// perRequest is of values per packet: they are compared per request, by
	// the packets per request of each host.
	perRequest bool
}

func (q *quantity) value(g *regime, packetsPerRequest float64) float64 {
	if q.perRequest {
		return g.middle(q.of) * packetsPerRequest
	}
	return g.middle(q.of)
}

const (
	// leastShare is the part of the requests that makes a regime more than a
	// passing state, and leastRows the number of windows that does so in any
	// case: under a policy that tries much, or a load that follows the day, no
	// regime has much of the whole.
	leastShare = 0.02
	leastRows  = 20
)

// targets are the regimes with the most requests.
func (r *Recording) targets() []target {
	all := make([]*regime, 0, len(r.regimes))
	for _, g := range r.regimes {
		if g.requests >= leastRequests && g.key.load > 0 && g.seen >= 2 && (g.seen >= leastRows || g.requests >= leastShare*r.requests) {
			all = append(all, g)
		}
	}
	slices.SortFunc(all, func(a, b *regime) int {
		return cmp.Or(cmp.Compare(b.requests, a.requests), cmp.Compare(a.key.load, b.key.load),
			cmp.Compare(a.key.settings.String(), b.key.settings.String()))
	})
	all = all[:min(len(all), mostRegimes)]
	per := r.PacketsPerRequest()
	wait, _ := r.Wait()
	out := make([]target, len(all))
	for i, g := range all {
		t := target{
			settings: g.key.settings, wait: wait, windows: g.seen,
			rate: g.middle(func(w *row) float32 { return w.packetRate }) / per,
		}
		for _, q := range []quantity{
			{name: "p50", tolerance: delayTolerance, of: func(w *row) float32 { return w.p50 }},
			{name: "p90", tolerance: tailTolerance, of: func(w *row) float32 { return w.p90 }},
			{name: "service", tolerance: serviceTolerance, of: func(w *row) float32 { return w.service }},
			{name: "polls per request", tolerance: countTolerance, perRequest: true, of: func(w *row) float32 { return w.pollRate / w.packetRate }},
			{name: "NAPI time per request", tolerance: costTolerance, perRequest: true, of: func(w *row) float32 { return w.receiving }},
			{name: "other time per request", tolerance: costTolerance, perRequest: true, of: func(w *row) float32 { return w.other }},
			{name: "epoll returns per request", tolerance: countTolerance, perRequest: true, of: func(w *row) float32 { return w.waits }},
		} {
			// What was not observed is not asked for.
			if q.want = q.value(g, per); q.want > 0 && !math.IsInf(q.want, 0) {
				t.quantities = append(t.quantities, q)
			}
		}
		out[i] = t
	}
	return out
}

type fitter struct {
	options    FitOptions
	parameters []parameter
	start      *sim.Preset
	targets    []target
}

func (f *fitter) fit(ctx context.Context) (*Fitted, error) {
	n := len(f.parameters)
	prior := make([]float64, n)
	for i, p := range f.parameters {
		prior[i] = p.value(f.start)
	}
	x := slices.Clone(prior)
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
	return f.fitted(ctx, x, hessian, at)
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
	out := &Fitted{best: f.preset(x), parameters: f.parameters, mean: x, deviation: make([]float64, n)}
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

func (f *fitter) preset(x []float64) *sim.Preset {
	p := *f.start
	for i, parameter := range f.parameters {
		parameter.set(&p, x[i])
	}
	return &p
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
	return out, nil
}

// simulate runs the regimes, each on a queue of its own.
func (f *fitter) simulate(ctx context.Context, x []float64) ([]simulated, error) {
	p := f.preset(x)
	out := make([]simulated, len(f.targets))
	errs := make([]error, len(f.targets))
	var wait sync.WaitGroup
	free := make(chan struct{}, f.options.Workers)
	for i, t := range f.targets {
		wait.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			out[i], errs[i] = f.one(ctx, p, t)
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

func (f *fitter) one(ctx context.Context, p *sim.Preset, t target) (simulated, error) {
	span := time.Duration(float64(f.options.Requests) / t.rate * float64(time.Second))
	s, err := sim.New(sim.Options{
		Preset: p, Case: sim.Case{NAPI: t.settings, Wait: t.wait}, Load: sim.Constant(t.rate), Seed: f.options.Seed,
		Window: span, Duration: span, Warmup: span / 20, Workers: 1,
	})
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
