package policy

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// LadderOptions are the parameters of [Ladder].
type LadderOptions struct {
	// Start is where the ladder is stepped on from plain interrupts.
	Start time.Duration
	// Max is the top rung.
	Max time.Duration
	// Differ is the relative difference of two windows that counts.
	Differ float64
	// Tired is the number of steps after which it rests for as many windows.
	Tired int
}

// DefaultLadderOptions returns what the spec "ladder" stands for. The kernel
// counts differences above 10%, but of rates between rungs far apart; here a
// step changes the cost by 2 to 8%.
func DefaultLadderOptions() LadderOptions {
	return LadderOptions{Start: 20 * time.Microsecond, Max: gridMost, Differ: 0.02, Tired: 10}
}

func ladderKind() Kind {
	return Kind{
		Name:    "ladder",
		Usage:   "ladder[:start=20us,max=200us,differ=0.02,tired=10]",
		Summary: "climbs rungs of flush timeout as the kernel's net_dim does: goes on while it gets better, turns, parks, and tires",
		keys:    []string{"start", "max", "differ", "tired"},
		make: func(a *arguments) (model.Policy, error) {
			o := DefaultLadderOptions()
			o.Max = a.duration("max", o.Max, gridStart, time.Second)
			o.Start = a.duration("start", o.Start, gridStart, time.Second)
			o.Differ = a.share("differ", o.Differ)
			o.Tired = a.count("tired", o.Tired, 2, 1000)
			o.Start = a.startWithin(o.Start, gridStart, o.Max)
			return NewLadder(o), a.err
		},
	}
}

// Ladder climbs the flush timeout by the algorithm of the kernel's dynamic
// interrupt moderation (net_dim, lib/dim), with another order of importance:
// whether the SLO holds comes first, then cost; where it is broken before and
// after, the smaller delay is better.
//
// It keeps going while the window is better than the one before. What is not
// better turns it. One step after a turn, with more than one step the other way
// before, it is on top and parks there, until delay or cost differ from what
// they were then. After ten steps it is tired and rests for ten windows. Unlike
// net_dim it knows which way a broken SLO is mended.
type Ladder struct {
	options LadderOptions
	rungs   []time.Duration
	queues  map[model.Queue]*ladderQueue
}

type ladderState int

const (
	goingUp ladderState = iota
	goingDown
	parkedOnTop
	parkedTired
)

type ladderQueue struct {
	state    ladderState
	up, down int // steps since the last turn that way
	tired    int
	// seen is the window compared with; has is false when there is none.
	seen model.Features
	has  bool
	// wanted is the step that was proposed and not yet seen in effect.
	wanted *ladderStep
	entry  resting
}

type ladderStep struct {
	flush   time.Duration
	purpose model.Purpose
	why     string
}

func (s ladderStep) decision(f model.Features) model.Decision {
	return model.Decision{Settings: settingsFor(modeFor(f), s.flush, f), Purpose: s.purpose, Why: s.why}
}

// NewLadder returns a ladder. Options are not checked; [Parse] does.
func NewLadder(o LadderOptions) *Ladder {
	var rungs []time.Duration
	for i, g := range grid(o.Max) {
		if i%2 == 0 || g == o.Max {
			rungs = append(rungs, g)
		}
	}
	return &Ladder{options: o, rungs: rungs, queues: make(map[model.Queue]*ladderQueue)}
}

// Name implements [model.Policy].
func (p *Ladder) Name() string {
	o := p.options
	return fmt.Sprintf("ladder:start=%v,max=%v,differ=%v,tired=%d", o.Start, o.Max, o.Differ, o.Tired)
}

// Suspends reports that suspension is proposed where applications are ready.
func (p *Ladder) Suspends() bool { return true }

// Decide implements [model.Policy].
func (p *Ladder) Decide(f model.Features) model.Decision {
	q, ok := p.queues[f.Queue]
	if !ok {
		q = &ladderQueue{}
		p.queues[f.Queue] = q
	}
	q.entry.tick()
	if d, waits := p.learn(q, f); waits {
		return d
	}
	if why := unobserved(f); why != "" {
		return hold(f, why)
	}
	if f.Active.Mode() == model.ModeInterrupts {
		return p.enter(q, f)
	}
	return p.step(q, f)
}

// learn takes the fate of the step proposed last. It reports that the same step
// is to be proposed again, when nothing came of it yet.
func (p *Ladder) learn(q *ladderQueue, f model.Features) (model.Decision, bool) {
	if f.Outcome.Verdict == model.VerdictReverted {
		// The trial saw more windows than the ladder compares.
		q.park(f)
		if f.Outcome.From.Mode() == model.ModeInterrupts {
			q.entry.fail()
		}
		return model.Decision{}, false
	}
	if q.wanted == nil {
		return model.Decision{}, false
	}
	want := *q.wanted
	if current(f.Active) == want.flush {
		q.wanted = nil
		return model.Decision{}, false
	}
	switch f.Outcome.Verdict {
	case model.VerdictHeld, model.VerdictAdvised:
		if want.purpose == model.PurposeCost && broken(f) || timersAreTheLoad(f) && want.flush < f.Active.GROFlushTimeout {
			q.wanted = nil
			return model.Decision{}, false
		}
		return want.decision(f), true
	case model.VerdictRefused, model.VerdictFailed, model.VerdictAborted:
		q.park(f)
	default:
		// It was cut short, or something else set the queue.
		q.wanted = nil
	}
	return model.Decision{}, false
}

// park stays where the queue is now.
func (q *ladderQueue) park(f model.Features) {
	q.state, q.wanted = parkedOnTop, nil
	q.up, q.down, q.tired = 0, 0, 0
	q.seen, q.has = f, unobserved(f) == ""
}

// enter steps on the ladder from plain interrupts.
func (p *Ladder) enter(q *ladderQueue, f model.Features) model.Decision {
	if q.entry.left > 0 {
		return hold(f, fmt.Sprintf("stepping on cost more than plain interrupts did; resting for %s", model.Count(q.entry.left, "more window")))
	}
	// A timer that fires as often as packets come polls more than interrupts
	// would, and where one entry failed a higher one may not.
	at := max(p.options.Start, fruitful(f.PacketRate, packetsPerPoll(f))) << min(q.entry.failures, 4)
	if at > p.options.Max || at <= 0 {
		at = p.options.Max
	}
	rung := nearest(p.rungs, at)
	if fruitful(f.PacketRate, packetsPerPoll(f)) > p.options.Max {
		return hold(f, fmt.Sprintf("at %s packets/s flush timeouts up to %v would poll about as often as interrupts do", rate(f.PacketRate), p.options.Max))
	}
	*q = ladderQueue{state: goingUp, entry: q.entry}
	purpose := model.PurposeCost
	if broken(f) {
		purpose = model.PurposeSafety
	}
	return p.propose(q, f, rung, purpose, fmt.Sprintf("stepping on the ladder at flush %v", p.rungs[rung]))
}

// step is net_dim's decision.
func (p *Ladder) step(q *ladderQueue, f model.Features) model.Decision {
	at := nearest(p.rungs, f.Active.GROFlushTimeout)
	result, why := p.compare(f, q)
	if broken(f) {
		return p.mend(q, f, at)
	}
	switch q.state {
	case parkedOnTop:
		moved, difference := q.moved(f)
		if !moved {
			return hold(f, fmt.Sprintf("parked on top at flush %v; %s", f.Active.GROFlushTimeout, difference))
		}
		why = difference
		q.leave(at)
	case parkedTired:
		q.tired--
		if moved, _ := q.moved(f); q.tired > 0 && !moved {
			return hold(f, fmt.Sprintf("tired after %s; it rests for %s", model.Count(p.options.Tired, "step"), model.Count(q.tired, "more window")))
		}
		q.leave(at)
	case goingUp, goingDown:
		if math.Abs(f.RateChange) > ladderMoved {
			q.seen, q.has = f, true
			return hold(f, fmt.Sprintf("load moved by %+.0f%%; windows of two loads cannot be compared", 100*f.RateChange))
		}
		if result != better && q.has {
			q.turn()
		}
		if q.onTop() {
			q.park(f)
			return hold(f, fmt.Sprintf("on top at flush %v: one step after a turn; %s", f.Active.GROFlushTimeout, why))
		}
	}
	q.tired++
	if q.tired >= p.options.Tired {
		q.state, q.up, q.down = parkedTired, 0, 0
		q.seen, q.has = f, true
		return hold(f, fmt.Sprintf("tired after %s; resting for as many windows", model.Count(p.options.Tired, "step")))
	}
	next := at + 1
	if q.state == goingDown {
		next = at - 1
	}
	if next < 0 || next >= len(p.rungs) {
		q.park(f)
		return hold(f, fmt.Sprintf("at the end of the ladder, flush %v", f.Active.GROFlushTimeout))
	}
	purpose := model.PurposeCost
	if next < at {
		purpose = model.PurposeReturn
	}
	return p.propose(q, f, next, purpose, fmt.Sprintf("%s; flush %v to %v", why, f.Active.GROFlushTimeout, p.rungs[next]))
}

// mend answers a broken SLO: down, but up where the timers are the load.
func (p *Ladder) mend(q *ladderQueue, f model.Features, at int) model.Decision {
	next, steps := at-1, &q.down
	q.state = goingDown
	if timersAreTheLoad(f) {
		next, steps, q.state = at+1, &q.up, goingUp
	}
	why := fmt.Sprintf("%s %v is above the SLO %v", quantile(f), f.Quantile, f.Objective.SLO)
	if next > at && delaysByItself(f) {
		q.seen, q.has = f, true
		return hold(f, fmt.Sprintf("%s at utilisation %.2f; less flush timeout would add load and more is too long by itself", why, f.Utilisation))
	}
	if next < 0 || next >= len(p.rungs) {
		q.seen, q.has = f, true
		return hold(f, fmt.Sprintf("%s, at the end of the ladder", why))
	}
	// The other direction counts as more than one step, so that what mends it
	// is where it parks.
	q.up, q.down = 2, 2
	*steps = 0
	q.tired = 0
	return p.propose(q, f, next, model.PurposeSafety, fmt.Sprintf("%s; flush %v to %v", why, f.Active.GROFlushTimeout, p.rungs[next]))
}

func (p *Ladder) propose(q *ladderQueue, f model.Features, rung int, purpose model.Purpose, why string) model.Decision {
	if q.state == goingDown {
		q.down++
	} else {
		q.up++
	}
	q.seen, q.has = f, f.Active.Mode() != model.ModeInterrupts
	q.wanted = &ladderStep{flush: p.rungs[rung], purpose: purpose, why: why}
	return q.wanted.decision(f)
}

func (q *ladderQueue) turn() {
	if q.state == goingUp {
		q.state, q.down = goingDown, 0
	} else {
		q.state, q.up = goingUp, 0
	}
	q.tired++
}

// onTop reports that one step was made since a turn, and more than one before.
func (q *ladderQueue) onTop() bool {
	return q.state == goingUp && q.down > 1 && q.up == 1 || q.state == goingDown && q.up > 1 && q.down == 1
}

// leave ends parking, towards the lower neighbour first.
func (q *ladderQueue) leave(at int) {
	q.state, q.up, q.down, q.tired = goingDown, 0, 0, 0
	if at == 0 {
		q.state = goingUp
	}
}

// ladderMoved is the relative change of load or cost that ends parking, as in
// net_dim.
const ladderMoved = 0.1

// moved reports whether a parked queue differs from what it was when it parked.
func (q *ladderQueue) moved(f model.Features) (bool, string) {
	if !q.has {
		// It was parked by a guard, in a window that could not be measured.
		q.seen, q.has = f, true
	}
	load := f.PacketRate/q.seen.PacketRate - 1
	cost := float64(f.CostPerPacket)/float64(q.seen.CostPerPacket) - 1
	why := fmt.Sprintf("since it parked load moved by %+.0f%% and cost by %+.0f%%", 100*load, 100*cost)
	return math.Abs(load) > ladderMoved || math.Abs(cost) > ladderMoved, why
}

type comparedTo int

const (
	worse comparedTo = iota - 1
	same
	better
)

// compare ranks a window against the one kept.
func (p *Ladder) compare(f model.Features, q *ladderQueue) (comparedTo, string) {
	if !q.has {
		return same, "nothing to compare with"
	}
	was := q.seen
	switch {
	case broken(was) && !broken(f):
		return better, fmt.Sprintf("%s %v holds the SLO %v again", quantile(f), f.Quantile, f.Objective.SLO)
	case broken(f) && !broken(was):
		return worse, fmt.Sprintf("%s %v broke the SLO %v", quantile(f), f.Quantile, f.Objective.SLO)
	case broken(f):
		return p.rank(float64(was.Quantile), float64(f.Quantile)),
			fmt.Sprintf("%s %v after %v", quantile(f), f.Quantile, was.Quantile)
	}
	return p.rank(float64(was.CostPerPacket), float64(f.CostPerPacket)),
		fmt.Sprintf("%v per packet after %v", f.CostPerPacket, was.CostPerPacket)
}

// rank compares two values of which less is better.
func (p *Ladder) rank(was, is float64) comparedTo {
	switch change := math.Log(is / was); {
	case change < -p.options.Differ:
		return better
	case change > p.options.Differ:
		return worse
	}
	return same
}
