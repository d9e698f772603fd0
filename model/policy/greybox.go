package policy

import (
	"errors"
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// GreyboxGoal is what [Greybox] minimises among the settings that meet the SLO.
type GreyboxGoal string

// The goals.
const (
	// GoalCPU is the least CPU time per packet.
	GoalCPU GreyboxGoal = "min-cpu"
	// GoalLatency is the least delay, with the utilisation below a cap.
	GoalLatency GreyboxGoal = "min-latency"
	// GoalBalanced is the least sum of CPU time per packet and delay, at a
	// price for the delay.
	GoalBalanced GreyboxGoal = "balanced"
)

// GreyboxOptions are the parameters of [Greybox].
type GreyboxOptions struct {
	// Goal is what is minimised.
	Goal GreyboxGoal
	// CPU is the utilisation, between 0 and 1, that [GoalLatency] keeps below.
	CPU float64
	// Price is what a microsecond of delay is worth to [GoalBalanced], in CPU
	// time per packet.
	Price time.Duration
	// Grid is the ratio of neighbouring flush timeouts, above 1. Where
	// interrupts may be suspended, its square root is that of those next to
	// the present one.
	Grid float64
	// Start is the largest flush timeout tried first from plain interrupts.
	Start time.Duration
	// Min and Max bound the flush timeout of deferral and suspension.
	Min, Max time.Duration
	// Prior is what is believed before anything was seen: "generic", or a
	// preset's name.
	Prior string
}

// DefaultGreyboxOptions returns what the spec "greybox" stands for.
func DefaultGreyboxOptions() GreyboxOptions {
	return GreyboxOptions{
		Goal:  GoalCPU,
		CPU:   0.8,
		Price: 10 * time.Nanosecond,
		Grid:  1.12,
		Start: 50 * time.Microsecond,
		Min:   gridStart,
		Max:   400 * time.Microsecond,
		Prior: genericPrior,
	}
}

func greyboxKind() Kind {
	return Kind{
		Name:    "greybox",
		Usage:   "greybox[:objective=min-cpu|min-latency|balanced,prior=generic|epyc7662-cx5,grid=1.12,start=50us,min=8us,max=400us,cpu=0.8,price=10ns]",
		Summary: "predicts cost and delay of every mode and flush timeout from what it saw, and takes the cheapest that should hold the SLO",
		keys:    []string{"objective", "prior", "grid", "start", "min", "max", "cpu", "price"},
		make:    makeGreybox,
	}
}

func makeGreybox(a *arguments) (model.Policy, error) {
	o := DefaultGreyboxOptions()
	o.Goal = GreyboxGoal(a.text("objective", string(o.Goal)))
	o.Prior = a.text("prior", o.Prior)
	o.Grid = a.number("grid", o.Grid, 1.02, 2)
	o.Min = a.duration("min", o.Min, time.Microsecond, time.Second)
	o.Max = a.duration("max", o.Max, time.Microsecond, time.Second)
	o.Start = a.duration("start", o.Start, time.Microsecond, time.Second)
	o.CPU = a.share("cpu", o.CPU)
	o.Price = a.duration("price", o.Price, 0, time.Second)
	switch {
	case a.err != nil:
		return nil, a.err
	case o.Goal != GoalCPU && o.Goal != GoalLatency && o.Goal != GoalBalanced:
		return nil, fmt.Errorf("unknown objective %q; possible are %s, %s, %s", o.Goal, GoalCPU, GoalLatency, GoalBalanced)
	case a.has("cpu") && o.Goal != GoalLatency:
		return nil, errors.New("cpu belongs to objective=min-latency")
	case a.has("price") && o.Goal != GoalBalanced:
		return nil, errors.New("price belongs to objective=balanced")
	case o.Min > o.Max:
		return nil, fmt.Errorf("min=%v is above max=%v", o.Min, o.Max)
	case a.has("start") && (o.Start < o.Min || o.Start > o.Max):
		return nil, fmt.Errorf("start=%v is not within min=%v and max=%v", o.Start, o.Min, o.Max)
	}
	o.Start = max(o.Min, min(o.Start, o.Max))
	return NewGreybox(o)
}

// Greybox predicts, and moves to the setting that it predicts to be the
// cheapest among those that should hold the SLO.
//
// Two linear models know the form of the laws and learn their coefficients:
// the logarithm of the CPU time per packet, and the quantile of the delay
// (greyboxphysics.go). Each queue has both, with what the other queues of the
// device saw as a prior. A setting counts as safe when the predicted delay, and
// a margin of as many errors of the prediction as violations so far call for,
// is within the SLO, and the CPU is predicted not to fill. It moves up only a
// little beyond what was seen to hold, and down as far as it has to.
//
// It is deterministic: what it does not know it learns from moves that are
// worth making if the optimistic half of its belief is right.
type Greybox struct {
	options GreyboxOptions
	// grid is of the flush timeouts, and fine has twice as many.
	grid, fine []time.Duration

	priors  greyboxPriors
	queues  map[model.Queue]*greyboxQueue
	devices map[greyboxDeviceKey]*greyboxDevice
	// loaded are the queues of an earlier run that this one has not met yet.
	loaded map[model.Queue]*greyboxQueue
}

// NewGreybox returns a greybox policy. Of the options it checks the prior's
// name alone; [Parse] checks all.
func NewGreybox(o GreyboxOptions) (*Greybox, error) {
	priors, err := newGreyboxPriors(o.Prior)
	if err != nil {
		return nil, err
	}
	return &Greybox{
		options: o,
		grid:    flushGrid(o.Min, o.Max, o.Grid),
		fine:    flushGrid(o.Min, o.Max, math.Sqrt(o.Grid)),
		priors:  priors,
		queues:  make(map[model.Queue]*greyboxQueue),
		devices: make(map[greyboxDeviceKey]*greyboxDevice),
		loaded:  make(map[model.Queue]*greyboxQueue),
	}, nil
}

// flushGrid returns flush timeouts from low to high, in steps of that ratio and
// whole microseconds.
func flushGrid(low, high time.Duration, ratio float64) []time.Duration {
	var out []time.Duration
	for g := float64(low); g < float64(high)*0.999; g *= ratio {
		at := time.Duration(g).Round(time.Microsecond)
		if len(out) == 0 || at > out[len(out)-1] {
			out = append(out, at)
		}
	}
	if len(out) == 0 || out[len(out)-1] < high {
		out = append(out, high)
	}
	return out
}

// Name implements [model.Policy].
func (p *Greybox) Name() string {
	o := p.options
	name := fmt.Sprintf("greybox:objective=%s,prior=%s,grid=%v,start=%v,min=%v,max=%v", o.Goal, o.Prior, o.Grid, o.Start, o.Min, o.Max)
	switch o.Goal {
	case GoalLatency:
		name += fmt.Sprintf(",cpu=%v", o.CPU)
	case GoalBalanced:
		name += fmt.Sprintf(",price=%v", o.Price)
	case GoalCPU:
	}
	return name
}

// Suspends reports that the policy may ask for suspension, for which the
// applications' epoll contexts must be observed.
func (p *Greybox) Suspends() bool { return true }

// plausible returns the features with what cannot be marked as not known.
func plausible(f model.Features) model.Features {
	if math.IsNaN(f.RateChange) {
		f.RateChange = 0
	}
	f.RateChange = max(-1, min(10, f.RateChange))
	if !(f.Utilisation >= 0 && f.Utilisation <= 1) {
		f.Utilisation = math.NaN()
	}
	if f.CostPerPacket < 0 || f.CostPerPacket > time.Second {
		f.CostPerPacket = 0
	}
	if f.Quantile < time.Microsecond || f.Quantile > time.Minute {
		f.Quantile = 0
	}
	if !(math.Abs(f.Outcome.CostChange) <= 1e3) {
		f.Outcome.CostChange = 0
	}
	return f
}

// Decide implements [model.Policy].
func (p *Greybox) Decide(f model.Features) model.Decision {
	if !(f.PacketRate >= 1) || f.PacketRate > 1e9 || f.Objective.SLO <= 0 {
		return hold(f, "no packets, nothing to learn")
	}
	f = plausible(f)
	q := p.queue(f.Queue)
	q.learn(&f)
	d := p.devices[greyboxDeviceKey{q.queue.Netns, q.queue.Ifindex}]
	d.host.see(d, q, &f)
	p.share(d, q, f.Suspension.Ready && d.host.over > 0)
	c := newGreyboxChoice(p, q, d, &f)
	decision := c.decide()
	q.prepared = c.rate
	q.decided(&f, &decision)
	if decision.Settings != f.Active {
		d.host.moved(q)
	}
	return decision
}
