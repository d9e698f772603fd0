package policy

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// PIOptions are the parameters of [PI].
type PIOptions struct {
	// Target is the share of the SLO that the quantile is held at.
	Target float64
	// Proportional and Integral are the gains: by how much the logarithm of the
	// flush timeout follows the change and the size of the error, per window.
	Proportional, Integral float64
	// Start is the timeout tried first from plain interrupts; Min and Max bound
	// it.
	Start, Min, Max time.Duration
}

// DefaultPIOptions returns what the spec "pi" stands for. Delay grows about as
// the square root to the first power of the flush timeout, so that an integral
// gain of 0.5 covers a third to a half of an error in a window.
func DefaultPIOptions() PIOptions {
	return PIOptions{
		Target: 0.9, Proportional: 0.2, Integral: 0.5,
		Start: 20 * time.Microsecond, Min: gridStart, Max: gridMost,
	}
}

func piKind() Kind {
	return Kind{
		Name:    "pi",
		Usage:   "pi[:target=0.9,p=0.2,i=0.5,start=20us,min=8us,max=200us]",
		Summary: "holds the delay at a share of the SLO by a proportional-integral controller of the flush timeout",
		keys:    []string{"target", "p", "i", "start", "min", "max"},
		make:    makePI,
	}
}

func makePI(a *arguments) (model.Policy, error) {
	o := DefaultPIOptions()
	o.Target = a.share("target", o.Target)
	o.Proportional = a.number("p", o.Proportional, 0, 2)
	o.Integral = a.number("i", o.Integral, 0.01, 2)
	o.Min = a.duration("min", o.Min, time.Microsecond, time.Second)
	o.Max = a.duration("max", o.Max, time.Microsecond, time.Second)
	o.Start = a.duration("start", o.Start, time.Microsecond, time.Second)
	o.Start = a.startWithin(o.Start, o.Min, o.Max)
	return NewPI(o), a.err
}

// PI controls the logarithm of the flush timeout so that the objective's
// quantile stays at a share of the SLO: any more timeout would break it, and
// any less would cost CPU.
//
// It is the incremental form of a proportional-integral controller, with the
// queue's active timeout as its integral. So it does not wind up, whatever
// bounds, guards or another writer made of its last proposal.
//
// Where interrupts are only deferred and the CPU is nearly full, its plant
// reverses: less timeout makes delays longer. There it never goes down.
type PI struct {
	options PIOptions
	queues  map[model.Queue]*piQueue
}

type piQueue struct {
	// previous is the error before, NaN when there was none.
	previous float64
	up       resting
}

const (
	// piDeadband is the change of the logarithm below which noise is followed.
	piDeadband = 0.05
	// piRise bounds a move up to two steps of the grid.
	piRise = 2 * 0.2231435513142097
	// piError bounds an error, so that one wild window is no more than that.
	piError = 1.5
)

// NewPI returns a PI policy. Options are not checked; [Parse] does.
func NewPI(o PIOptions) *PI {
	return &PI{options: o, queues: make(map[model.Queue]*piQueue)}
}

// Name implements [model.Policy].
func (p *PI) Name() string {
	o := p.options
	return fmt.Sprintf("pi:target=%v,p=%v,i=%v,start=%v,min=%v,max=%v", o.Target, o.Proportional, o.Integral, o.Start, o.Min, o.Max)
}

// Suspends reports that suspension is proposed where applications are ready.
func (p *PI) Suspends() bool { return true }

// Decide implements [model.Policy].
func (p *PI) Decide(f model.Features) model.Decision {
	q, ok := p.queues[f.Queue]
	if !ok {
		q = &piQueue{previous: math.NaN()}
		p.queues[f.Queue] = q
	}
	q.up.tick()
	switch f.Outcome.Verdict {
	case model.VerdictReverted:
		if f.Outcome.Purpose == model.PurposeCost {
			q.up.fail()
		}
		q.previous = math.NaN()
	case model.VerdictKept:
		q.up = resting{}
	default:
	}
	switch {
	case !(f.PacketRate > 0) || math.IsInf(f.PacketRate, 0):
		return hold(f, "no packets, nothing to control")
	case f.Quantile <= 0:
		return hold(f, "the delay was not observed")
	case f.Objective.SLO <= 0:
		return hold(f, "there is no SLO to control by")
	}
	return p.control(q, f)
}

func (p *PI) control(q *piQueue, f model.Features) model.Decision {
	target := time.Duration(p.options.Target * float64(f.Objective.SLO))
	e := math.Log(float64(max(target, 1)) / float64(f.Quantile))
	e = max(-piError, min(e, piError))
	change := p.options.Integral * e
	if !math.IsNaN(q.previous) {
		change += p.options.Proportional * (e - q.previous)
	}
	q.previous = e
	change = min(change, piRise)
	seen := fmt.Sprintf("%s %v for a target of %v (%.0f%% of the SLO)", quantile(f), f.Quantile, target, 100*p.options.Target)

	full := timersAreTheLoad(f) && broken(f)
	if full {
		if delaysByItself(f) && f.Active.Mode() != model.ModeInterrupts {
			return hold(f, fmt.Sprintf("%s at utilisation %.2f; less flush timeout would add load and more is too long by itself", seen, f.Utilisation))
		}
		// The reversed plant, at the rate at which it rises otherwise.
		change = min(math.Abs(change), piRise)
	}
	if timersAreTheLoad(f) && change < 0 {
		return hold(f, fmt.Sprintf("%s at utilisation %.2f; less flush timeout would add load", seen, f.Utilisation))
	}
	rises := change > 0
	if rises && !full && q.up.left > 0 {
		return hold(f, fmt.Sprintf("%s; a rise was reverted and rests for %s", seen, model.Count(q.up.left, "more window")))
	}
	var next time.Duration
	if f.Active.Mode() == model.ModeInterrupts {
		if !rises && !broken(f) {
			return hold(f, seen+"; plain interrupts are close enough")
		}
		// A timer that fires as often as packets come polls more than
		// interrupts would.
		next = max(p.options.Start, fruitful(f.PacketRate, packetsPerPoll(f)))
		if next > p.options.Max {
			return hold(f, fmt.Sprintf("at %s packets/s flush timeouts up to %v would poll about as often as interrupts do", rate(f.PacketRate), p.options.Max))
		}
	} else {
		if math.Abs(change) < piDeadband {
			return hold(f, fmt.Sprintf("%s; close enough at flush %v", seen, f.Active.GROFlushTimeout))
		}
		next = time.Duration(float64(f.Active.GROFlushTimeout) * math.Exp(change))
	}
	next = max(p.options.Min, min(wholeMicroseconds(next), p.options.Max))
	s := settingsFor(modeFor(f), next, f)
	if s == f.Active {
		return hold(f, fmt.Sprintf("%s; flush %v is as far as it may go", seen, next))
	}
	d := model.Decision{Settings: s, Purpose: model.PurposeCost, Why: fmt.Sprintf("%s; flush %v to %v", seen, current(f.Active), next)}
	if !rises || full {
		d.Purpose = model.PurposeSafety
	}
	if full {
		d.Why = fmt.Sprintf("%s at utilisation %.2f; fewer polls free CPU: flush %v to %v", seen, f.Utilisation, current(f.Active), next)
	}
	return d
}
