package policy

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"autotune/model"
	"autotune/model/gp"
)

// SafeBOOptions are the parameters of [SafeBO].
type SafeBOOptions struct {
	// Beta is the number of standard deviations by which a delay must be
	// predicted below the SLO to count as safe.
	Beta float64
	// Points is the number of points kept; it may grow to twice as many
	// before the oldest are dropped.
	Points int
	// Start is the first flush timeout where interrupts are only deferred.
	Start time.Duration
	// Max is the largest flush timeout.
	Max time.Duration
}

// DefaultSafeBOOptions returns what the spec "safebo" stands for.
func DefaultSafeBOOptions() SafeBOOptions {
	return SafeBOOptions{Beta: 1.5, Points: 60, Start: 20 * time.Microsecond, Max: gridMost}
}

func safeBOKind() Kind {
	return Kind{
		Name:    "safebo",
		Usage:   "safebo[:beta=1.5,points=60,start=20us,max=200us]",
		Summary: "Gaussian processes of delay and cost over timeout and load: the cheapest timeout of a safe set that grows from its neighbours",
		keys:    []string{"beta", "points", "start", "max"},
		make: func(a *arguments) (model.Policy, error) {
			o := DefaultSafeBOOptions()
			o.Beta = a.number("beta", o.Beta, 0, 10)
			o.Points = a.count("points", o.Points, 4, 500)
			o.Max = a.duration("max", o.Max, gridStart, time.Second)
			o.Start = a.duration("start", o.Start, gridStart, time.Second)
			switch {
			case a.err != nil:
				return nil, a.err
			case o.Start > o.Max && a.has("start"):
				return nil, fmt.Errorf("start=%v is above max=%v", o.Start, o.Max)
			}
			o.Start = min(o.Start, o.Max)
			return NewSafeBO(o), nil
		},
	}
}

// SafeBO is contextual safe Bayesian optimisation after SafeOpt (Sui, Gotovos,
// Burdick and Krause, 2015). Two Gaussian processes, of the logarithms of delay
// and cost, are learned over the logarithms of flush timeout and load. Safe is
// what is predicted below the SLO by beta standard deviations; the safe set
// grows from the most conservative timeout, since a prediction is certain only
// near what was measured.
//
// Within the safe set the lowest lower confidence bound of cost is taken, or a
// point that would prove its more promising neighbour safe, were its delay as
// good as it may be.
//
// Windows at one timeout and a load within 15% are one point, with the mean of
// the last of them, so that a queue at rest does not forget what it knows
// elsewhere, and time and memory are bounded.
type SafeBO struct {
	options SafeBOOptions
	choices []time.Duration
	queues  map[banditKey]*safeQueue
}

const (
	// safeMargin is the share of the SLO that may be used up.
	safeMargin = 0.98
	// safeLoad is the width of a point in the logarithm of load, safeMean the
	// number of windows that its mean goes over.
	safeLoad = 0.15
	safeMean = 6
	// safeDelayNoise and safeCostNoise are the variances of a point.
	safeDelayNoise = 0.06 * 0.06
	safeCostNoise  = 0.02 * 0.02
	// safeOptimism is the number of standard deviations below the mean that
	// cost is taken to be.
	safeOptimism = 0.5
	// safeKnown is the standard deviation of a delay below which measuring it
	// proves nothing more.
	safeKnown = 0.05
	// safeSurprise is the number of standard deviations, in two windows in a
	// row, that prove the model wrong.
	safeSurprise = 4
	// safeApart is how far plain interrupts are from any timeout, so that
	// neither tells anything of the other.
	safeApart = 20
	// safeRecent is the number of windows whose points outlive a surprise.
	safeRecent = 4
)

type safeCell struct{ choice, load int }

// safeQueue is what is known of one queue in one mode. Points of both processes
// have the same positions.
type safeQueue struct {
	delay, cost *gp.Process
	cells       map[safeCell]int
	// of, seen and last are by point: its cell, its windows, and the last.
	of         []safeCell
	seen, last []int
	turn       int
	// load and base are the logarithms of the first window's load and cost.
	load, base float64
	surprises  int
}

// NewSafeBO returns a SafeBO policy. Options are not checked; [Parse] does.
func NewSafeBO(o SafeBOOptions) *SafeBO {
	return &SafeBO{options: o, choices: choices(o.Max), queues: make(map[banditKey]*safeQueue)}
}

// Name implements [model.Policy].
func (p *SafeBO) Name() string {
	o := p.options
	return fmt.Sprintf("safebo:beta=%v,points=%d,start=%v,max=%v", o.Beta, o.Points, o.Start, o.Max)
}

// Suspends reports that suspension is proposed where applications are ready.
func (p *SafeBO) Suspends() bool { return true }

func newSafeQueue(f model.Features) *safeQueue {
	// Delay follows timeout over a factor of e and load over two; the third
	// dimension sets plain interrupts apart. Not known, a delay is at the SLO
	// and so not safe.
	lengths := []float64{1, 0.7, 1}
	return &safeQueue{
		delay: gp.New(gp.Matern52{Variance: 0.7 * 0.7, Lengths: lengths}, 0, safeDelayNoise),
		cost:  gp.New(gp.Matern52{Variance: 0.3 * 0.3, Lengths: lengths}, 0, safeCostNoise),
		cells: make(map[safeCell]int),
		load:  math.Log(f.PacketRate),
		base:  math.Log(float64(f.CostPerPacket)),
	}
}

// position returns where a flush timeout lies at a load.
func (q *safeQueue) position(flush time.Duration, load float64) []float64 {
	if flush <= 0 {
		return []float64{0, load, safeApart}
	}
	return []float64{math.Log(float64(flush) / float64(gridStart)), load, 0}
}

// Decide implements [model.Policy].
func (p *SafeBO) Decide(f model.Features) model.Decision {
	if why := unobserved(f); why != "" {
		return hold(f, why)
	}
	if f.Objective.SLO <= 0 {
		return hold(f, "there is no SLO to be safe by")
	}
	key := banditKey{f.Queue, modeFor(f)}
	q, ok := p.queues[key]
	if !ok {
		q = newSafeQueue(f)
		p.queues[key] = q
	}
	at := nearest(p.choices, current(f.Active))
	if m := f.Active.Mode(); m == key.mode || m == model.ModeInterrupts || q.delay.Len() == 0 {
		p.learn(q, at, f)
	}
	return p.choose(q, at, f)
}

// learn takes what the active setting showed.
func (p *SafeBO) learn(q *safeQueue, at int, f model.Features) {
	q.turn++
	load := max(-4, min(math.Log(f.PacketRate)-q.load, 4))
	l := max(-3, min(math.Log(float64(f.Quantile)/float64(f.Objective.SLO)), 3))
	c := max(-3, min(math.Log(float64(f.CostPerPacket))-q.base, 3))

	cell := safeCell{choice: at, load: int(math.Round(load / safeLoad))}
	x := q.position(p.choices[at], float64(cell.load)*safeLoad)
	was := q.delay.Predict([][]float64{x})
	if off := l - was.Mean[0]; broken(f) && off > safeSurprise*math.Sqrt(was.Variance[0]+safeDelayNoise) {
		q.surprises++
	} else {
		q.surprises = 0
	}
	forgot := q.surprises >= 2
	if forgot {
		q.surprises = 0
		q.keep(func(i int) bool { return q.turn-q.last[i] <= safeRecent })
	}
	if i, ok := q.cells[cell]; ok {
		if forgot {
			q.seen[i] = 0
		}
		q.seen[i] = min(q.seen[i]+1, safeMean)
		n := float64(q.seen[i])
		q.delay.Set(i, q.delay.Value(i)+(l-q.delay.Value(i))/n)
		q.cost.Set(i, q.cost.Value(i)+(c-q.cost.Value(i))/n)
		q.last[i] = q.turn
		return
	}
	if q.delay.Len() >= 2*p.options.Points {
		recent := slices.Clone(q.last)
		slices.SortFunc(recent, func(a, b int) int { return cmp.Compare(b, a) })
		oldest := recent[p.options.Points-1]
		q.keep(func(i int) bool { return q.last[i] >= oldest })
	}
	if q.delay.Add(x, l) != nil {
		return
	}
	if q.cost.Add(x, c) != nil {
		// Both have the same points, always.
		q.keep(func(i int) bool { return i < q.cost.Len() })
		return
	}
	q.cells[cell] = len(q.of)
	q.of, q.seen, q.last = append(q.of, cell), append(q.seen, 1), append(q.last, q.turn)
}

// keep drops the points for which want is false, or all if that leaves no
// factor.
func (q *safeQueue) keep(want func(int) bool) {
	var which []int
	for i := range q.of {
		if want(i) {
			which = append(which, i)
		}
	}
	if q.delay.Keep(which) != nil || q.cost.Keep(which) != nil {
		which = nil
		_ = q.delay.Keep(nil)
		_ = q.cost.Keep(nil)
	}
	of, seen, last := make([]safeCell, len(which)), make([]int, len(which)), make([]int, len(which))
	clear(q.cells)
	for to, from := range which {
		of[to], seen[to], last[to] = q.of[from], q.seen[from], q.last[from]
		q.cells[of[to]] = to
	}
	q.of, q.seen, q.last = of, seen, last
}

// seed returns the position of the most conservative flush timeout: the
// smallest in suspension; in deferral, where small ones load the CPU, one at
// which timers fire less often than packets come.
func (p *SafeBO) seed(f model.Features) int {
	if modeFor(f) == model.ModeSuspension {
		return 1
	}
	return nearest(p.choices, max(p.options.Start, min(fruitful(f.PacketRate, 1), p.options.Max)))
}

// choose takes the best of what can be reached.
func (p *SafeBO) choose(q *safeQueue, at int, f model.Features) model.Decision {
	seed := p.seed(f)
	low, high := 0, min(max(at+banditReach, seed), len(p.choices)-1)
	if timersAreTheLoad(f) {
		low = at
	}
	load := max(-4, min(math.Log(ahead(f))-q.load, 4))
	positions := make([][]float64, 0, high-low+1)
	for _, flush := range p.choices[low : high+1] {
		positions = append(positions, q.position(flush, load))
	}
	delay, cost := q.delay.Predict(positions), q.cost.Predict(positions)
	limit := math.Log(safeMargin)
	upper := func(i int) float64 { return delay.Mean[i-low] + p.options.Beta*math.Sqrt(delay.Variance[i-low]) }
	lower := func(i int) float64 { return cost.Mean[i-low] - safeOptimism*math.Sqrt(cost.Variance[i-low]) }
	var safe []int
	for i := low; i <= high; i++ {
		// Of the seed nothing is known at first; it is safe until it shows that
		// it is not.
		if upper(i) <= limit || i == seed && delay.Mean[i-low] < safeKnown && math.Sqrt(delay.Variance[i-low]) > safeKnown {
			safe = append(safe, i)
		}
	}
	slo := func(x float64) time.Duration { return delayOf(x, f) }
	if len(safe) == 0 {
		return p.retreat(f, seed, low, high, delay, upper)
	}
	best := safe[0]
	for _, i := range safe {
		if lower(i) < lower(best) {
			best = i
		}
	}
	if slices.Contains(safe, at) && lower(at)-lower(best) < banditGain {
		best = at
	}
	if probe, beyond, ok := p.expander(q, f, safe, low, high, delay, lower, cost.Mean[best-low]); ok {
		return p.decide(f, probe, model.PurposeExploration, fmt.Sprintf("%s is safe, at most %v of %v; measured well it would prove %s safe",
			describe(p.choices[probe]), slo(upper(probe)), f.Objective.SLO, describe(p.choices[beyond])))
	}
	purpose := model.PurposeCost
	if broken(f) {
		purpose = model.PurposeSafety
	}
	change := 100 * math.Expm1(cost.Mean[best-low]+q.base-math.Log(float64(f.CostPerPacket)))
	return p.decide(f, best, purpose, fmt.Sprintf("%s is the cheapest of %d safe choices: cost %+.1f%% against now, %s at most %v of %v",
		describe(p.choices[best]), len(safe), change, quantile(f), slo(upper(best)), f.Objective.SLO))
}

// delayOf returns the delay whose logarithm, relative to the SLO, is x.
func delayOf(x float64, f model.Features) time.Duration {
	return time.Duration(float64(f.Objective.SLO) * math.Exp(x)).Round(100 * time.Nanosecond)
}

// retreat answers where nothing is safe: while the SLO is broken, what is
// expected to break it the least; otherwise what is the least likely to.
func (p *SafeBO) retreat(f model.Features, seed, low, high int, delay *gp.Prediction, upper func(int) float64) model.Decision {
	purpose, expected := model.PurposeExploration, upper
	how := fmt.Sprintf("at most by %g standard deviations", p.options.Beta)
	if broken(f) {
		purpose, how = model.PurposeSafety, "on the mean"
		expected = func(i int) float64 { return delay.Mean[i-low] }
	}
	// Of equals, the seed.
	least := max(low, min(seed, high))
	for i := low; i <= high; i++ {
		if expected(i) < expected(least)-1e-6 {
			least = i
		}
	}
	return p.decide(f, least, purpose, fmt.Sprintf("nothing within reach is safe for the SLO %v; %s is the nearest to it, with %v %s",
		f.Objective.SLO, describe(p.choices[least]), delayOf(expected(least), f), how))
}

// expander returns the safe position of the least certain delay that would, at
// its most optimistic, prove safe a neighbour that may be cheaper than the best.
func (p *SafeBO) expander(q *safeQueue, f model.Features, safe []int, low, high int, delay *gp.Prediction, lower func(int) float64, cost float64) (probe, beyond int, ok bool) {
	if f.RateChange > 0.2 || f.Utilisation > fullCPU || broken(f) || q.turn < 2 {
		return 0, 0, false
	}
	widest := safeKnown
	for _, i := range safe {
		j := i + 1
		if i == 0 || j > high || slices.Contains(safe, j) || lower(j) > cost-banditGain {
			continue
		}
		deviation := math.Sqrt(delay.Variance[i-low])
		mean, variance := delay.Given(i-low, delay.Mean[i-low]-p.options.Beta*deviation, j-low)
		if deviation > widest && mean+p.options.Beta*math.Sqrt(variance) <= math.Log(safeMargin) {
			probe, beyond, ok, widest = i, j, true, deviation
		}
	}
	return probe, beyond, ok
}

func (p *SafeBO) decide(f model.Features, position int, purpose model.Purpose, why string) model.Decision {
	flush := p.choices[position]
	s := settingsFor(modeFor(f), flush, f)
	if s == f.Active || flush == current(f.Active) && s.Mode() == f.Active.Mode() {
		return model.Decision{Settings: f.Active, Purpose: model.PurposeHold, Why: why}
	}
	return model.Decision{Settings: s, Purpose: purpose, Why: why}
}
