package sim

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"gonum.org/v1/gonum/optimize"

	"autotune/model"
)

// Parameter is one value of a preset that a fit may move, within limits.
type Parameter struct {
	Name     string
	Low, Top float64
	at       func(*Preset) (*time.Duration, *float64)
	// moderation tells that it is for the cells that interrupts drive to say,
	// see [Fit].
	moderation bool
}

// Value returns the parameter's value in p; times are in nanoseconds.
func (p Parameter) Value(from *Preset) float64 {
	d, f := p.at(from)
	if d != nil {
		return float64(*d)
	}
	return *f
}

// Set changes the parameter in p.
func (p Parameter) Set(in *Preset, v float64) {
	v = min(max(v, p.Low), p.Top)
	d, f := p.at(in)
	if d != nil {
		*d = time.Duration(math.Round(v))
		return
	}
	*f = v
}

// Parameters returns what a fit moves: the costs, what the client and the
// device add, and how the scheduler places threads.
func Parameters() []Parameter {
	duration := func(name string, low, top float64, at func(*Preset) *time.Duration) Parameter {
		return Parameter{Name: name, Low: low, Top: top, at: func(p *Preset) (*time.Duration, *float64) { return at(p), nil }}
	}
	number := func(name string, low, top float64, at func(*Preset) *float64) Parameter {
		return Parameter{Name: name, Low: low, Top: top, at: func(p *Preset) (*time.Duration, *float64) { return nil, at(p) }}
	}
	moderation := func(p Parameter) Parameter {
		p.moderation = true
		return p
	}
	return []Parameter{
		duration("request_system_ns", 500, 6000, func(p *Preset) *time.Duration { return &p.Cost.RequestSystem }),
		duration("receive_data_ns", 300, 2500, func(p *Preset) *time.Duration { return &p.Cost.ReceiveData }),
		duration("receive_ack_ns", 100, 1500, func(p *Preset) *time.Duration { return &p.Cost.ReceiveACK }),
		duration("tx_completion_ns", 50, 600, func(p *Preset) *time.Duration { return &p.Cost.TxCompletion }),
		duration("poll_ns", 100, 2000, func(p *Preset) *time.Duration { return &p.Cost.Poll }),
		duration("busy_poll_ns", 200, 2000, func(p *Preset) *time.Duration { return &p.Cost.BusyPoll }),
		number("busy_poll_contention", 0, 0.95, func(p *Preset) *float64 { return &p.Cost.BusyPollContention }),
		duration("busy_poll_entry_ns", 0, 1500, func(p *Preset) *time.Duration { return &p.Cost.BusyPollEntry }),
		duration("interrupt_ns", 100, 3000, func(p *Preset) *time.Duration { return &p.Cost.Interrupt }),
		moderation(duration("interrupt_nic_ns", 100, 6000, func(p *Preset) *time.Duration { return &p.Cost.InterruptNIC })),
		duration("softirq_raise_ns", 0, 4000, func(p *Preset) *time.Duration { return &p.Cost.SoftirqRaise }),
		duration("epoll_wait_ns", 100, 3000, func(p *Preset) *time.Duration { return &p.Cost.EpollWait }),
		duration("epoll_event_ns", 0, 800, func(p *Preset) *time.Duration { return &p.Cost.EpollEvent }),
		duration("sleep_ns", 0, 3000, func(p *Preset) *time.Duration { return &p.Cost.Sleep }),
		duration("wake_ns", 0, 5000, func(p *Preset) *time.Duration { return &p.Cost.Wake }),
		duration("softirq_cold_ns", 0, 2500, func(p *Preset) *time.Duration { return &p.Cost.SoftirqCold }),
		duration("idle_entry_ns", 0, 2500, func(p *Preset) *time.Duration { return &p.Cost.IdleEntry }),
		duration("idle_exit_ns", 0, 4000, func(p *Preset) *time.Duration { return &p.Cost.IdleExit }),
		duration("idle_exit_deep_ns", 0, 4000, func(p *Preset) *time.Duration { return &p.Cost.IdleExitDeep }),
		duration("idle_deep_time_ns", 5e3, 500e3, func(p *Preset) *time.Duration { return &p.Cost.IdleDeepTime }),
		duration("interference_ns", 0, 2500, func(p *Preset) *time.Duration { return &p.Cost.Interference }),
		duration("interference_packet_ns", 0, 400, func(p *Preset) *time.Duration { return &p.Cost.InterferencePacket }),
		duration("reuse_ns", 0, 2000, func(p *Preset) *time.Duration { return &p.Cost.Reuse }),
		number("reuse_distance_packets", 10, 500, func(p *Preset) *float64 { return &p.Cost.ReuseDistance }),
		duration("cold_ns", 0, 8000, func(p *Preset) *time.Duration { return &p.Cost.Cold }),
		number("cold_requests", 0.5, 64, func(p *Preset) *float64 { return &p.Cost.ColdRequests }),
		duration("displaced_ns", 0, 5000, func(p *Preset) *time.Duration { return &p.Cost.Displaced }),
		duration("displaced_near_ns", 0, 2000, func(p *Preset) *time.Duration { return &p.Cost.DisplacedNear }),
		number("displaced_far_share", 0.02, 0.9, func(p *Preset) *float64 { return &p.Scheduling.Far }),
		moderation(number("displaced_probability", 0.05, 5, func(p *Preset) *float64 { return &p.Scheduling.Probability })),
		number("displaced_exponent", 0.3, 6, func(p *Preset) *float64 { return &p.Scheduling.Exponent }),
		moderation(duration("apply_delay_ns", 1e4, 5e6, func(p *Preset) *time.Duration { return &p.NIC.ApplyDelay })),
		moderation(number("tx_rate_noise", 0.01, 10, func(p *Preset) *float64 { return &p.NIC.TxRateNoise })),
		moderation(number("rate_noise", 0.01, 30, func(p *Preset) *float64 { return &p.NIC.RateNoise })),
		moderation(duration("tx_delay_ns", 100, 3e4, func(p *Preset) *time.Duration { return &p.NIC.TxDelay })),
		duration("round_trip_ns", 1e4, 5e4, func(p *Preset) *time.Duration { return &p.Client.RoundTrip }),
		duration("jitter_ns", 1e3, 2e4, func(p *Preset) *time.Duration { return &p.Client.Jitter }),
		duration("jitter_per_million_ns", 0, 2e4, func(p *Preset) *time.Duration { return &p.Client.JitterLoad }),
		duration("bump_ns", 3e4, 1.5e5, func(p *Preset) *time.Duration { return &p.Client.Bump }),
		duration("bump_jitter_ns", 0, 4e4, func(p *Preset) *time.Duration { return &p.Client.BumpJitter }),
		number("bump_share", 0, 0.3, func(p *Preset) *float64 { return &p.Client.BumpShare }),
		number("bump_share_per_million", 0, 0.3, func(p *Preset) *float64 { return &p.Client.BumpShareLoad }),
		duration("think_ns", 0, 4e5, func(p *Preset) *time.Duration { return &p.Client.Think }),
		number("imbalance", 0, 0.2, func(p *Preset) *float64 { return &p.Host.Imbalance }),
	}
}

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

// climb is an evolution strategy with one parent and one child (Rechenberg's
// rule for its step), which needs no slopes. A round is 16 children.
func (o *FitOptions) climb(ctx context.Context) (*Preset, error) {
	const children = 16
	x := o.units()
	if err := o.weigh(ctx, x); err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	r, err := o.residuals(ctx, x)
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	loss := robust(r)
	random := newRandom(o.Seed, 'c')
	step := 0.08
	for i := range o.Rounds * children {
		if o.Progress != nil && i%children == 0 {
			o.Progress(i/children, loss, o.preset(x))
		}
		next := slices.Clone(x)
		for j := range next {
			if random.float() < 0.5 {
				next[j] = min(max(next[j]+step*random.normal(), 0), 1)
			}
		}
		r, err := o.residuals(ctx, next)
		if err != nil {
			return nil, fmt.Errorf("fit: %w", err)
		}
		if l := robust(r); l < loss {
			x, loss = next, l
			step = min(step*1.5, 0.2)
		} else {
			step = max(step*0.93, 0.02)
		}
	}
	if o.Progress != nil {
		o.Progress(o.Rounds, loss, o.preset(x))
	}
	return o.preset(x), nil
}

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

// noiseRuns is from how many runs the residuals' own noise is estimated.
const noiseRuns = 4

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

func (o *FitOptions) preset(x []float64) *Preset {
	p := *o.Start
	for i, parameter := range o.Parameters {
		parameter.Set(&p, parameter.fromUnit(min(max(x[i], 0), 1)))
	}
	return &p
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

// robust is the mean of log(1 + e^2).
func robust(residuals []float64) float64 {
	total := 0.0
	for _, e := range residuals {
		total += math.Log1p(e * e)
	}
	return total / float64(len(residuals))
}

// unit maps a value to the search's scale, 0 to 1; wide positive ranges are
// logarithmic.
func (p Parameter) unit(v float64) float64 {
	v = min(max(v, p.Low), p.Top)
	if p.Low > 0 {
		return math.Log(v/p.Low) / math.Log(p.Top/p.Low)
	}
	return (v - p.Low) / (p.Top - p.Low)
}

func (p Parameter) fromUnit(u float64) float64 {
	if p.Low > 0 {
		return p.Low * math.Pow(p.Top/p.Low, u)
	}
	return p.Low + u*(p.Top-p.Low)
}

// tolerance is the error of a column that costs the fit one unit.
var fitTolerance = [...]float64{0.01, 0.015, 0.02, 0.03, 0.02, 0.015}

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
		span *= 3
	}
	return Options{
		Preset: p, Case: observation.Case, Load: observation.Load, Seed: o.Seed,
		Duration: span, Warmup: span / 2, Workers: 1,
	}
}

func logError(got, want float64) float64 { return math.Log((got + 1e-9) / want) }
