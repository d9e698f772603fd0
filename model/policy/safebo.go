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
			o.Start = a.startWithin(o.Start, gridStart, o.Max)
			return NewSafeBO(o), a.err
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
	kernel  *safeKernel
	queues  map[banditKey]*safeQueue
	// outlook is that of the decision being made.
	outlook safeOutlook
}

const (
	// safeMargin is the share of the SLO that may be used up.
	safeMargin = 0.98
	// safeLoad is the width of a point in the logarithm of load, safeMean the
	// number of windows that its mean goes over.
	safeLoad = 0.15
	safeMean = 6
	// safeDelayVariance and safeCostVariance are those of the functions, and
	// safeNoise the variance of a point as a share of them: its deviation is
	// 5.6% of the delay and 2.4% of the cost.
	safeDelayVariance = 0.7 * 0.7
	safeCostVariance  = 0.3 * 0.3
	safeNoise         = 0.0064
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
	// safeViews is the number of loads for which positions are kept.
	safeViews = 6
	// safeDelay and safeCost are the outputs of the process.
	safeDelay, safeCost = 0, 1
)

type safeCell struct{ choice, load int }

// safeQueue is what is known of one queue in one mode.
type safeQueue struct {
	// process has the logarithms of delay, relative to the SLO, and of cost.
	process *gp.Process
	cells   map[safeCell]int
	// of, seen and last are by point: its cell, its windows, and the last.
	of         []safeCell
	seen, last []int
	turn       int
	// load and base are the logarithms of the first window's load and cost.
	load, base float64
	surprises  int
	// views are the positions of the loads looked at last, the last one first.
	views []safeView
}

// safeView is the choices at one load. A position is of that load where it is
// placed, and of an earlier one otherwise.
type safeView struct {
	load      int
	positions []*gp.Position
	placed    []bool
}

// NewSafeBO returns a SafeBO policy. Options are not checked; [Parse] does.
func NewSafeBO(o SafeBOOptions) *SafeBO {
	all := choices(o.Max)
	return &SafeBO{options: o, choices: all, kernel: newSafeKernel(all), queues: make(map[banditKey]*safeQueue)}
}

// Name implements [model.Policy].
func (p *SafeBO) Name() string {
	o := p.options
	return fmt.Sprintf("safebo:beta=%v,points=%d,start=%v,max=%v", o.Beta, o.Points, o.Start, o.Max)
}

// Suspends reports that suspension is proposed where applications are ready.
func (p *SafeBO) Suspends() bool { return true }

func newSafeQueue(f model.Features, kernel gp.Kernel) *safeQueue {
	// Not known, a delay is at the SLO and so not safe.
	return &safeQueue{
		process: gp.New(kernel, safeNoise, gp.Output{Variance: safeDelayVariance}, gp.Output{Variance: safeCostVariance}),
		cells:   make(map[safeCell]int),
		load:    math.Log(f.PacketRate),
		base:    math.Log(float64(f.CostPerPacket)),
	}
}

// bin numbers the loads that are told apart.
func (q *safeQueue) bin(packetRate float64) int {
	return int(math.Round(max(-4, min(math.Log(packetRate)-q.load, 4)) / safeLoad))
}

// place returns where a choice lies at a load, for [safeKernel].
func place(choice, load int) [2]float64 { return [2]float64{float64(choice), float64(load)} }

// safeReach is how many loads apart two points still tell of each other.
const safeReach = 64

// safeKernel is a Matern kernel between the numbers of choices and loads. All
// queues have the same, so that each correlation is computed once.
type safeKernel struct {
	choices int
	// table is by the two choices, then by how far apart the loads are.
	table []float64
}

func newSafeKernel(choices []time.Duration) *safeKernel {
	// Delay follows timeout over a factor of e and load over two; the third
	// dimension sets plain interrupts apart.
	law := gp.Matern52{1, 0.7, 1}
	where := func(choice, load int) []float64 {
		z := float64(load) * safeLoad
		if choices[choice] <= 0 {
			return []float64{0, z, safeApart}
		}
		return []float64{math.Log(float64(choices[choice]) / float64(gridStart)), z, 0}
	}
	k := &safeKernel{choices: len(choices)}
	for i := range choices {
		for j := range choices {
			for apart := range safeReach {
				k.table = append(k.table, law.Correlation(where(i, 0), where(j, apart)))
			}
		}
	}
	return k
}

// Correlation implements [gp.Kernel].
func (k *safeKernel) Correlation(x, y []float64) float64 {
	apart := int(math.Abs(x[1] - y[1]))
	if apart >= safeReach {
		return 0
	}
	return k.table[(int(x[0])*k.choices+int(y[0]))*safeReach+apart]
}

// at returns the choices at a load.
func (q *safeQueue) at(load, choices int) *safeView {
	i := slices.IndexFunc(q.views, func(v safeView) bool { return v.load == load })
	var v safeView
	switch {
	case i >= 0:
		v = q.views[i]
	case len(q.views) < safeViews:
		i, v = len(q.views), safeView{load, make([]*gp.Position, choices), make([]bool, choices)}
		q.views = append(q.views, v)
	default:
		i = len(q.views) - 1
		v = q.views[i]
		v.load = load
		clear(v.placed)
	}
	copy(q.views[1:i+1], q.views[:i])
	q.views[0] = v
	return &q.views[0]
}

// position returns that of a choice in a view.
func (q *safeQueue) position(v *safeView, choice int) *gp.Position {
	at := place(choice, v.load)
	switch {
	case v.positions[choice] == nil:
		v.positions[choice] = q.process.At(at[:])
	case !v.placed[choice]:
		v.positions[choice].Move(at[:])
	}
	v.placed[choice] = true
	return v.positions[choice]
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
		q = newSafeQueue(f, p.kernel)
		p.queues[key] = q
	}
	at := nearest(p.choices, current(f.Active))
	if m := f.Active.Mode(); m == key.mode || m == model.ModeInterrupts || q.process.Len() == 0 {
		p.learn(q, at, f)
	}
	return p.choose(q, at, f)
}

// learn takes what the active setting showed.
func (p *SafeBO) learn(q *safeQueue, at int, f model.Features) {
	q.turn++
	l := max(-3, min(math.Log(float64(f.Quantile)/float64(f.Objective.SLO)), 3))
	c := max(-3, min(math.Log(float64(f.CostPerPacket))-q.base, 3))

	cell := safeCell{choice: at, load: q.bin(f.PacketRate)}
	was, variance := q.position(q.at(cell.load, len(p.choices)), at).Predict(safeDelay)
	if broken(f) && l-was > safeSurprise*math.Sqrt(variance+safeNoise*safeDelayVariance) {
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
		delay, cost := q.process.Value(safeDelay, i), q.process.Value(safeCost, i)
		q.process.Set(i, delay+(l-delay)/n, cost+(c-cost)/n)
		q.last[i] = q.turn
		return
	}
	if q.process.Len() >= 2*p.options.Points {
		recent := slices.Clone(q.last)
		slices.SortFunc(recent, func(a, b int) int { return cmp.Compare(b, a) })
		oldest := recent[p.options.Points-1]
		q.keep(func(i int) bool { return q.last[i] >= oldest })
	}
	x := place(at, cell.load)
	if q.process.Add(x[:], l, c) != nil {
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
	if q.process.Keep(which) != nil {
		which = nil
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
	view := q.at(q.bin(ahead(f)), len(p.choices))
	o := p.look(q, view, low, high)
	limit := math.Log(safeMargin)
	var safe []int
	for i := low; i <= high; i++ {
		// Of the seed nothing is known at first; it is safe until it shows that
		// it is not.
		if o.upper(i) <= limit || i == seed && o.of(i).delay < safeKnown && o.of(i).deviation > safeKnown {
			safe = append(safe, i)
		}
	}
	slo := func(x float64) time.Duration { return delayOf(x, f) }
	if len(safe) == 0 {
		return p.retreat(f, seed, o)
	}
	best := safe[0]
	for _, i := range safe {
		if o.of(i).lower < o.of(best).lower {
			best = i
		}
	}
	if slices.Contains(safe, at) && o.of(at).lower-o.of(best).lower < banditGain {
		best = at
	}
	if probe, beyond, ok := p.expander(q, f, safe, o, best); ok {
		return p.decide(f, probe, model.PurposeExploration, fmt.Sprintf("%s is safe, at most %v of %v; measured well it would prove %s safe",
			describe(p.choices[probe]), slo(o.upper(probe)), f.Objective.SLO, describe(p.choices[beyond])))
	}
	purpose := model.PurposeCost
	if broken(f) {
		purpose = model.PurposeSafety
	}
	change := 100 * math.Expm1(o.of(best).cost+q.base-math.Log(float64(f.CostPerPacket)))
	return p.decide(f, best, purpose, fmt.Sprintf("%s is the cheapest of %d safe choices: cost %+.1f%% against now, %s at most %v of %v",
		describe(p.choices[best]), len(safe), change, quantile(f), slo(o.upper(best)), f.Objective.SLO))
}

// safeOutlook is what is predicted of the choices that can be reached.
type safeOutlook struct {
	view      *safeView
	low, high int
	beta      float64
	guesses   []safeGuess
}

// safeGuess is what is predicted of one choice: mean and deviation of the delay,
// mean and lower confidence bound of the cost.
type safeGuess struct{ delay, deviation, cost, lower float64 }

func (o *safeOutlook) of(choice int) *safeGuess { return &o.guesses[choice-o.low] }

// upper returns the upper confidence bound of a choice's delay.
func (o *safeOutlook) upper(choice int) float64 {
	g := o.of(choice)
	return g.delay + o.beta*g.deviation
}

// look predicts the choices from low to high. The result is valid until the next
// call.
func (p *SafeBO) look(q *safeQueue, view *safeView, low, high int) *safeOutlook {
	o := &p.outlook
	*o = safeOutlook{view: view, low: low, high: high, beta: p.options.Beta, guesses: o.guesses[:0]}
	for i := low; i <= high; i++ {
		position := q.position(view, i)
		delay, wide := position.Predict(safeDelay)
		cost, variance := position.Predict(safeCost)
		o.guesses = append(o.guesses, safeGuess{delay, math.Sqrt(wide), cost, cost - safeOptimism*math.Sqrt(variance)})
	}
	return o
}

// delayOf returns the delay whose logarithm, relative to the SLO, is x.
func delayOf(x float64, f model.Features) time.Duration {
	return time.Duration(float64(f.Objective.SLO) * math.Exp(x)).Round(100 * time.Nanosecond)
}

// retreat answers where nothing is safe: while the SLO is broken, what is
// expected to break it the least; otherwise what is the least likely to.
func (p *SafeBO) retreat(f model.Features, seed int, o *safeOutlook) model.Decision {
	purpose, expected := model.PurposeExploration, o.upper
	how := fmt.Sprintf("at most by %g standard deviations", p.options.Beta)
	if broken(f) {
		purpose, how = model.PurposeSafety, "on the mean"
		expected = func(i int) float64 { return o.of(i).delay }
	}
	// Of equals, the seed.
	least := max(o.low, min(seed, o.high))
	for i := o.low; i <= o.high; i++ {
		if expected(i) < expected(least)-1e-6 {
			least = i
		}
	}
	return p.decide(f, least, purpose, fmt.Sprintf("nothing within reach is safe for the SLO %v; %s is the nearest to it, with %v %s",
		f.Objective.SLO, describe(p.choices[least]), delayOf(expected(least), f), how))
}

// expander returns the safe position of the least certain delay that would, at
// its most optimistic, prove safe a neighbour that may be cheaper than the best.
func (p *SafeBO) expander(q *safeQueue, f model.Features, safe []int, o *safeOutlook, best int) (probe, beyond int, ok bool) {
	if f.RateChange > 0.2 || f.Utilisation > fullCPU || broken(f) || q.turn < 2 {
		return 0, 0, false
	}
	widest := safeKnown
	for _, i := range safe {
		j := i + 1
		if i == 0 || j > o.high || slices.Contains(safe, j) || o.of(j).lower > o.of(best).cost-banditGain {
			continue
		}
		here := o.of(i)
		mean, variance := o.view.positions[j].Given(o.view.positions[i], safeDelay, here.delay-p.options.Beta*here.deviation)
		if here.deviation > widest && mean+p.options.Beta*math.Sqrt(variance) <= math.Log(safeMargin) {
			probe, beyond, ok, widest = i, j, true, here.deviation
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
