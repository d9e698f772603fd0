package policy

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// AIMDOptions are the parameters of [AIMD].
type AIMDOptions struct {
	// Start is the first flush timeout tried from plain interrupts.
	Start time.Duration
	// Step is the first step of a climb. While a climb goes on without a
	// verdict the timeout doubles, since the gain of small steps drowns in
	// noise.
	Step time.Duration
	// Backoff is the factor on the flush timeout when the SLO is broken,
	// between 0 and 1.
	Backoff float64
	// Min and Max bound the flush timeout. A Min of zero puts plain interrupts
	// among the choices.
	Min, Max time.Duration
}

// DefaultAIMDOptions returns what the spec "aimd" stands for.
func DefaultAIMDOptions() AIMDOptions {
	return AIMDOptions{
		Start:   20 * time.Microsecond,
		Step:    4 * time.Microsecond,
		Backoff: 0.6,
		Max:     200 * time.Microsecond,
	}
}

func aimdKind() Kind {
	return Kind{
		Name:    "aimd",
		Usage:   "aimd[:start=20us,step=4us,backoff=0.6,min=0us,max=200us]",
		Summary: "climbs the flush timeout while CPU falls, backs off when the SLO is broken, and remembers both by load",
		keys:    []string{"start", "step", "backoff", "min", "max"},
		make:    makeAIMD,
	}
}

func makeAIMD(a *arguments) (model.Policy, error) {
	o := DefaultAIMDOptions()
	o.Start = a.duration("start", o.Start, time.Microsecond, time.Second)
	o.Step = a.duration("step", o.Step, time.Microsecond, time.Second)
	o.Backoff = a.share("backoff", o.Backoff)
	o.Min = a.duration("min", o.Min, 0, time.Second)
	o.Max = a.duration("max", o.Max, time.Microsecond, time.Second)
	o.Start = a.startWithin(o.Start, o.Min, o.Max)
	return NewAIMD(o), a.err
}

// AIMD moves one variable, the flush timeout; the defer count follows from it,
// and so does the mode: suspension where an application is ready for it,
// deferral elsewhere.
//
// While the SLO holds it climbs as long as the CPU per packet falls, or as long
// as a climb has no verdict yet: near the bottom a larger timeout gains little
// or even costs, and only a larger one still pays. When the SLO is broken it
// backs off by a factor; while the CPU is nearly full and interrupts are only
// deferred it climbs instead, since there the timers are the load.
//
// What it learns is kept by load regime, in bands of half an octave of packets
// per second: the best setting confirmed there, the cost of each setting tried,
// and how long to leave a failed direction alone. When load comes back to a
// known band, so does the setting.
type AIMD struct {
	options AIMDOptions
	queues  map[model.Queue]*aimdQueue
}

// NewAIMD returns an AIMD policy. Options are not checked; [Parse] does.
func NewAIMD(o AIMDOptions) *AIMD {
	return &AIMD{options: o, queues: make(map[model.Queue]*aimdQueue)}
}

const (
	// aimdSteady is the relative change of load beyond which a window mixes
	// two loads: its cost belongs to neither.
	aimdSteady = 0.2
	// aimdSettled is the number of steady windows after which the setting
	// found in a new band counts as what holds there.
	aimdSettled = 3
	// aimdPause is the number of windows, spent in the band, for which a
	// failed direction rests at first; it doubles with each failure in a row.
	aimdPause = 16
	// aimdMaxPause bounds the doubling.
	aimdMaxPause = 4096
	// aimdBudget is the share of the CPU that trying may cost in the long run:
	// a try that cost 150% of a window rests for 150 windows.
	aimdBudget = 0.01
	// aimdRecheck is the number of windows after which the cost of plain
	// interrupts in a band is measured afresh.
	aimdRecheck = 2048
	// aimdMargin is the share of the SLO that a climb may use up: at the SLO
	// itself noise would break it in every other window.
	aimdMargin = 0.93
	// aimdCosts is the number of settings of a band of which the cost is kept.
	aimdCosts = 64
	// aimdFull is the utilisation above which a smaller timeout makes delays
	// longer, not shorter, where interrupts are only deferred.
	aimdFull = 0.8
)

// aimdQueue is what is known of one queue.
type aimdQueue struct {
	bands    map[int]*aimdBand
	band     int
	hasBand  bool
	move     *aimdMove
	breaches int
}

// aimdMove is a proposal of which the verdict is not known.
type aimdMove struct {
	band    int
	purpose model.Purpose
	anchor  model.Settings
	at      model.Settings
	up      bool
	// applied tells that the loop took it; steps is how often it went on.
	applied bool
	steps   int
	// loss is the CPU spent above the anchor's, in windows' worth.
	loss float64
}

// Name implements [model.Policy].
func (p *AIMD) Name() string {
	o := p.options
	return fmt.Sprintf("aimd:start=%v,step=%v,backoff=%v,min=%v,max=%v", o.Start, o.Step, o.Backoff, o.Min, o.Max)
}

// Decide implements [model.Policy].
func (p *AIMD) Decide(f model.Features) model.Decision {
	q, ok := p.queues[f.Queue]
	if !ok {
		q = &aimdQueue{bands: make(map[int]*aimdBand)}
		p.queues[f.Queue] = q
	}
	if !(f.PacketRate > 0) || math.IsInf(f.PacketRate, 0) {
		return hold(f, "no packets, nothing to learn")
	}
	steady := math.Abs(f.RateChange) <= aimdSteady
	band, known := q.locate(f.PacketRate, steady)
	if band == nil {
		p.learn(q, f)
		if b := q.ahead(f); b != nil && q.move == nil {
			if best := possible(b.best, f); best != f.Active {
				return model.Decision{
					Settings: best,
					Purpose:  model.PurposeReturn,
					Why:      fmt.Sprintf("load moved by %+.0f%% towards where %v was confirmed", 100*f.RateChange, b.best),
				}
			}
		}
		return hold(f, fmt.Sprintf("load moved by %+.0f%% to %s packets/s, not seen before; waiting for it to settle", 100*f.RateChange, rate(f.PacketRate)))
	}
	if !known {
		band.best = possible(q.neighbour(band, f.Active), f)
	}
	p.learn(q, f)
	band.note(f, steady)
	if band.age < band.suspension.until && f.Active.Mode() != model.ModeSuspension {
		// Where it failed, deferral is what is left.
		f.Suspension.Ready = false
	}
	if q.breached(f) {
		band.steady = 0
	}

	if q.move != nil {
		if d, ok := p.goOn(q, f); ok {
			return d
		}
	}
	if best := possible(band.best, f); band.confirmed && f.Active != best {
		return model.Decision{
			Settings: best,
			Purpose:  model.PurposeReturn,
			Why:      fmt.Sprintf("%v was confirmed at about %s packets/s%s", band.best, rate(f.PacketRate), band.costWhy(band.best)),
		}
	}
	if !steady {
		return hold(f, fmt.Sprintf("load moved by %+.0f%%; its cost cannot be compared", 100*f.RateChange))
	}
	if q.breaches >= model.BreachWindows {
		return p.backOff(q, band, f)
	}
	if f.Quantile > f.Objective.SLO {
		return hold(f, fmt.Sprintf("%s %v is above the SLO %v in %s; %d confirm it", quantile(f), f.Quantile, f.Objective.SLO, model.Count(q.breaches, "window"), model.BreachWindows))
	}
	if !band.confirmed {
		return p.enter(q, band, f)
	}
	if d, ok := p.tryInterrupts(q, band, f); ok {
		return d
	}
	return p.climb(q, band, f)
}

func (q *aimdQueue) breached(f model.Features) bool {
	if f.Objective.SLO > 0 && f.Quantile > f.Objective.SLO {
		q.breaches++
	} else {
		q.breaches = 0
	}
	return q.breaches > 0
}

// learn takes the fate of the move that is under way.
func (p *AIMD) learn(q *aimdQueue, f model.Features) {
	m := q.move
	if m == nil {
		return
	}
	band := q.bands[m.band]
	if m.applied && f.Active == m.at && f.CostPerPacket > 0 {
		if c, ok := band.costs[m.anchor]; ok && c.mean > 0 {
			m.loss += max(0, float64(f.CostPerPacket)/c.mean-1)
		}
	}
	switch f.Outcome.Verdict {
	case model.VerdictApplied:
		if m.applied {
			m.steps++
		}
		m.applied, m.at = true, f.Outcome.To
	case model.VerdictKept:
		band.best, band.confirmed = f.Outcome.To, true
		band.steady = 0
		p.rest(band, m).failures = 0
		q.move = nil
	case model.VerdictReverted:
		m.loss = max(m.loss, f.Outcome.CostChange)
		p.rest(band, m).fail(band.age, m.loss)
		if m.up && f.Outcome.CostChange < 0 && f.Outcome.Guard != "" && f.Quantile > f.Objective.SLO {
			// It was cheaper, and too slow.
			band.ceiling = current(m.at)
			band.ceilRest.fail(band.age, 0)
		}
		q.move = nil
	case model.VerdictRefused, model.VerdictFailed:
		if !m.applied {
			p.rest(band, m).fail(band.age, 0)
			q.move = nil
		}
	case model.VerdictHeld, model.VerdictAborted, model.VerdictAdvised:
		if !m.applied || f.Outcome.Verdict == model.VerdictAborted {
			q.move = nil
		}
	default:
		if !m.applied {
			q.move = nil
		}
	}
	if q.move != nil && q.move.applied && f.Active != q.move.at {
		// Something else set the queue meanwhile.
		q.move = nil
	}
}

func (p *AIMD) rest(b *aimdBand, m *aimdMove) *aimdRest {
	switch {
	case m.suspends():
		return &b.suspension
	case m.up:
		return &b.up
	case m.purpose == model.PurposeSafety:
		return &b.ceilRest
	}
	return &b.down
}

// goOn proposes the next step of a climb without a verdict.
func (p *AIMD) goOn(q *aimdQueue, f model.Features) (model.Decision, bool) {
	m := q.move
	if q.band != m.band {
		band := q.bands[q.band]
		if band.confirmed && f.Active != possible(band.best, f) {
			q.move = nil
			return model.Decision{}, false
		}
		return hold(f, fmt.Sprintf("load left the band of the move to %v", m.at)), true
	}
	if !m.up || m.purpose != model.PurposeCost || q.breaches > 0 {
		return hold(f, fmt.Sprintf("waiting for the verdict on %v", m.at)), true
	}
	next, ok := p.above(q.bands[q.band], f, m.steps+1)
	if !ok {
		return hold(f, fmt.Sprintf("waiting for the verdict on %v, as far as the climb may go", m.at)), true
	}
	return model.Decision{
		Settings: settingsFor(modeFor(f), next, f),
		Purpose:  model.PurposeCost,
		Why: fmt.Sprintf("no verdict on %v against %v yet; going on to flush %v, since the gain grows with the timeout",
			m.at, m.anchor, next),
	}, true
}

// above returns the next flush timeout up; ok is false when there is none that
// the ceiling, the maximum and the SLO allow. The delay grows by no more than
// the timeout does.
func (p *AIMD) above(band *aimdBand, f model.Features, steps int) (flush time.Duration, ok bool) {
	cur := current(f.Active)
	limit := p.options.Max
	if band.ceiling > 0 && band.age < band.ceilRest.until {
		limit = min(limit, time.Duration(p.options.Backoff*float64(band.ceiling)))
	}
	if f.Objective.SLO > 0 {
		limit = min(limit, cur+time.Duration(aimdMargin*float64(f.Objective.SLO))-f.Quantile)
	}
	least := p.options.Min
	next := cur + p.options.Step<<min(steps, 20)
	switch {
	case cur <= p.options.Min && cur < p.entry(band, f):
		// A retry begins further out: the first may have stopped at a hump.
		next = p.entry(band, f) << min(band.up.failures, 10)
		least = max(least, band.fruitful(f))
	case steps > 0:
		next = max(next, 2*cur)
	}
	if next <= 0 {
		next = limit
	}
	next = wholeMicroseconds(min(next, limit))
	return next, next > cur && next >= least && next-cur >= p.options.Step/2
}

// entry returns where a climb from interrupts begins.
func (p *AIMD) entry(band *aimdBand, f model.Features) time.Duration {
	return max(p.options.Start, band.fruitful(f))
}

// enter brings a new band to what its neighbour holds.
func (p *AIMD) enter(q *aimdQueue, band *aimdBand, f model.Features) model.Decision {
	band.best = possible(band.best, f)
	if f.Active == band.best {
		return hold(f, fmt.Sprintf("%s packets/s is new; measuring %v there (%d of %d windows)", rate(f.PacketRate), f.Active, band.steady, aimdSettled))
	}
	target := band.best
	// If the neighbour's setting fails here, what is active is the start.
	band.best = f.Active
	return p.propose(q, f, target, model.PurposeCost,
		fmt.Sprintf("%s packets/s is new; trying %v, confirmed at the nearest known load", rate(f.PacketRate), target))
}

// tryInterrupts proposes the smallest setting where its cost in this band is
// not known: between it and a large timeout the cost is not monotone, so that
// stepping down would stop half way.
func (p *AIMD) tryInterrupts(q *aimdQueue, band *aimdBand, f model.Features) (model.Decision, bool) {
	low := deferral(p.options.Min)
	if current(f.Active) <= p.options.Min || f.Suspension.Ready || band.age < band.down.until || f.CostPerPacket <= 0 {
		return model.Decision{}, false
	}
	if c, ok := band.costs[low]; ok && band.age-c.age < aimdRecheck {
		return model.Decision{}, false
	}
	return p.propose(q, f, low, model.PurposeCost,
		fmt.Sprintf("the cost of %v at %s packets/s is not known; %v costs %v per packet", low, rate(f.PacketRate), f.Active, f.CostPerPacket)), true
}

func (p *AIMD) climb(q *aimdQueue, band *aimdBand, f model.Features) model.Decision {
	switch {
	case f.CostPerPacket <= 0:
		return hold(f, "the CPU cost is not known, so there is no reason to climb")
	case f.Active.Mode() == model.ModeSuspension && !f.Suspension.Ready:
		return hold(f, "interrupts are suspended, and no application is seen to be ready for it")
	case band.age < band.up.until:
		if d, ok := p.trySuspension(q, f); ok {
			return d
		}
		return hold(f, fmt.Sprintf("%v is the best known at %s packets/s%s; a climb failed here and rests for %s",
			f.Active, rate(f.PacketRate), band.costWhy(f.Active), model.Count(band.up.until-band.age, "more window")))
	}
	if current(f.Active) <= p.options.Min && p.entry(band, f) > p.options.Max {
		return hold(f, fmt.Sprintf("at %s packets/s flush timeouts up to %v would poll about as often as interrupts do", rate(f.PacketRate), p.options.Max))
	}
	next, ok := p.above(band, f, 0)
	if !ok {
		if d, ok := p.trySuspension(q, f); ok {
			return d
		}
		return hold(f, fmt.Sprintf("%v is as far as max %v and the SLO %v allow (%s %v)", f.Active, p.options.Max, f.Objective.SLO, quantile(f), f.Quantile))
	}
	return p.propose(q, f, settingsFor(modeFor(f), next, f), model.PurposeCost,
		fmt.Sprintf("%s %v is within the SLO %v; trying flush %v for less than %v per packet", quantile(f), f.Quantile, f.Objective.SLO, next, f.CostPerPacket))
}

// backOff answers a confirmed breach.
func (p *AIMD) backOff(q *aimdQueue, band *aimdBand, f model.Features) model.Decision {
	if f.Suspension.Ready && f.Active.Mode() != model.ModeSuspension {
		return p.suspend(q, band, f)
	}
	cur := current(f.Active)
	deferring := f.Active.Mode() != model.ModeSuspension
	if deferring && (f.Utilisation > aimdFull || cur <= p.options.Min) {
		next := wholeMicroseconds(min(max(cur+p.options.Step, p.entry(band, f)), p.options.Max))
		if next <= cur || next < band.fruitful(f) || band.age < band.up.until {
			return hold(f, fmt.Sprintf("%s %v is above the SLO %v at utilisation %.2f; a smaller timeout would add load, and a larger one does not help", quantile(f), f.Quantile, f.Objective.SLO, f.Utilisation))
		}
		return p.propose(q, f, deferral(next), model.PurposeSafety,
			fmt.Sprintf("%s %v is above the SLO %v at utilisation %.2f; fewer polls at flush %v may free the CPU", quantile(f), f.Quantile, f.Objective.SLO, f.Utilisation, next))
	}
	if f.Suspension.Ready && cur <= p.floor() || band.age < band.ceilRest.until && band.ceilRest.failures > 0 && band.ceiling == cur {
		return hold(f, fmt.Sprintf("%s %v is above the SLO %v and %v leaves nothing to take back", quantile(f), f.Quantile, f.Objective.SLO, f.Active))
	}
	next := wholeMicroseconds(time.Duration(p.options.Backoff * float64(cur)))
	if f.Suspension.Ready {
		next = max(next, p.floor())
	} else if next < max(p.options.Min, p.options.Start) || deferring && next < band.fruitful(f) {
		// Between interrupts and the least that pays, both delay and cost are
		// higher than at either.
		next = p.options.Min
	}
	band.ceiling = cur
	if band.ceilRest.until <= band.age {
		band.ceilRest.fail(band.age, 0)
	}
	settings := settingsFor(modeFor(f), next, f)
	if f.Active.Mode() == model.ModeSuspension && next > 0 {
		settings.IRQSuspendTimeout = f.Active.IRQSuspendTimeout
	}
	return p.propose(q, f, settings, model.PurposeSafety,
		fmt.Sprintf("%s %v is above the SLO %v in %s; flush %v to %v", quantile(f), f.Quantile, f.Objective.SLO, model.Count(q.breaches, "window"), cur, next))
}

func (p *AIMD) propose(q *aimdQueue, f model.Features, s model.Settings, purpose model.Purpose, why string) model.Decision {
	q.move = &aimdMove{
		band:    q.band,
		purpose: purpose,
		anchor:  f.Active,
		at:      s,
		up:      current(s) > current(f.Active),
	}
	return model.Decision{Settings: s, Purpose: purpose, Why: why}
}

// wholeMicroseconds rounds a flush timeout down: what differs by less is the
// same setting, and is to be known as that.
func wholeMicroseconds(d time.Duration) time.Duration { return d.Truncate(time.Microsecond) }

// current returns the flush timeout that is in effect: zero without a defer
// count.
func current(s model.Settings) time.Duration {
	if s.Mode() == model.ModeInterrupts {
		return 0
	}
	return s.GROFlushTimeout
}

func hold(f model.Features, why string) model.Decision {
	return model.Decision{Settings: f.Active, Purpose: model.PurposeHold, Why: why}
}

func rate(packetRate float64) string {
	if packetRate >= 10_000 {
		return fmt.Sprintf("%.0fK", packetRate/1000)
	}
	return fmt.Sprintf("%.0f", packetRate)
}

func quantile(f model.Features) string { return fmt.Sprintf("p%g", 100*f.Objective.Quantile) }
