package policy

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// LinUCBOptions are the parameters of [LinUCB].
type LinUCBOptions struct {
	Seed uint64
	// Alpha is the number of standard deviations that make up the bonus of what
	// is not known.
	Alpha float64
	// Epsilon is the share of decisions drawn uniformly.
	Epsilon float64
	// Max is the largest flush timeout.
	Max time.Duration
}

// DefaultLinUCBOptions returns what the spec "linucb" stands for.
func DefaultLinUCBOptions() LinUCBOptions {
	return LinUCBOptions{Seed: 1, Alpha: 1, Epsilon: 0.02, Max: gridMost}
}

func linUCBKind() Kind {
	return Kind{
		Name:    "linucb",
		Usage:   "linucb[:seed=1,alpha=1,epsilon=0.02,max=200us]",
		Summary: "contextual bandit: takes the choice of the highest upper confidence bound, and now and then any, with logged propensities",
		keys:    []string{"seed", "alpha", "epsilon", "max"},
		make: func(a *arguments) (model.Policy, error) {
			o := DefaultLinUCBOptions()
			o.Seed = a.seed()
			o.Alpha = a.number("alpha", o.Alpha, 0, 10)
			o.Epsilon = a.share("epsilon", o.Epsilon)
			o.Max = a.duration("max", o.Max, gridStart, banditMost)
			if a.err != nil {
				return nil, a.err
			}
			return NewLinUCB(o), nil
		},
	}
}

// LinUCB is the contextual bandit of Li, Chu, Langford and Schapire (2010) on a
// grid of flush timeouts and plain interrupts: reward is linear in features of
// timeout and load, and the choice with the highest mean plus alpha standard
// deviations is taken. A share epsilon of the decisions is drawn uniformly from
// what can be reached, so that each choice has a propensity above zero and the
// journal can be used to judge other policies.
type LinUCB struct {
	bandit
	options LinUCBOptions
}

// NewLinUCB returns a LinUCB policy. Options are not checked; [Parse] does.
func NewLinUCB(o LinUCBOptions) *LinUCB {
	return &LinUCB{bandit: newBandit(o.Seed, o.Max), options: o}
}

// Name implements [model.Policy].
func (p *LinUCB) Name() string {
	o := p.options
	return fmt.Sprintf("linucb:seed=%d,alpha=%v,epsilon=%v,max=%v", o.Seed, o.Alpha, o.Epsilon, o.Max)
}

// Decide implements [model.Policy].
func (p *LinUCB) Decide(f model.Features) model.Decision {
	b, why := p.observe(f)
	if b == nil {
		return hold(f, why)
	}
	can := reachable(p.choices, f)
	at := nearest(p.choices, current(f.Active))
	best, bound := can[0], math.Inf(-1)
	for _, i := range can {
		mean, deviation := p.predict(b, p.choices[i], ahead(f))
		u := mean + p.options.Alpha*deviation
		if i == at {
			u += banditGain
		}
		if u > bound {
			best, bound = i, u
		}
	}
	c := chosen{position: best, how: fmt.Sprintf("highest bound %.3f of %d", bound, len(can))}
	share := p.options.Epsilon / float64(len(can))
	if b.random.Float64() < p.options.Epsilon {
		c.position = can[b.random.IntN(len(can))]
		c.how = fmt.Sprintf("drawn uniformly out of %d", len(can))
		c.explores = c.position != best
	}
	c.propensity = share
	if c.position == best {
		c.propensity += 1 - p.options.Epsilon
	}
	return p.decide(b, f, c)
}
