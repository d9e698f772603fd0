package policy

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/mat"

	"autotune/model"
)

// ThompsonOptions are the parameters of [Thompson].
type ThompsonOptions struct {
	Seed uint64
	// Spread is the factor on the posterior's standard deviation that is drawn
	// from.
	Spread float64
	// Draws is the number of draws by which the propensity is estimated.
	Draws int
	// Max is the largest flush timeout.
	Max time.Duration
}

// DefaultThompsonOptions returns what the spec "thompson" stands for.
func DefaultThompsonOptions() ThompsonOptions {
	return ThompsonOptions{Seed: 1, Spread: 1, Draws: 64, Max: gridMost}
}

func thompsonKind() Kind {
	return Kind{
		Name:    "thompson",
		Usage:   "thompson[:seed=1,spread=1,draws=64,max=200us]",
		Summary: "contextual bandit: takes the best choice of a model drawn from the posterior, with estimated propensities",
		keys:    []string{"seed", "spread", "draws", "max"},
		make: func(a *arguments) (model.Policy, error) {
			o := DefaultThompsonOptions()
			o.Seed = a.seed()
			o.Spread = a.number("spread", o.Spread, 0, 10)
			o.Draws = a.count("draws", o.Draws, 1, 10_000)
			o.Max = a.duration("max", o.Max, gridStart, banditMost)
			if a.err != nil {
				return nil, a.err
			}
			return NewThompson(o), nil
		},
	}
}

// Thompson is Thompson sampling with the linear model of [LinUCB]: weights are
// drawn from their posterior, and the choice that is best by them is taken. So a
// choice is taken with the probability that it is the best. That probability has
// no closed form; the propensity is the share of a fixed number of further draws
// in which the same choice is the best, the one made counted among them, and so
// never zero.
type Thompson struct {
	bandit
	options ThompsonOptions
}

// NewThompson returns a Thompson policy. Options are not checked; [Parse] does.
func NewThompson(o ThompsonOptions) *Thompson {
	return &Thompson{bandit: newBandit(o.Seed, o.Max), options: o}
}

// Name implements [model.Policy].
func (p *Thompson) Name() string {
	o := p.options
	return fmt.Sprintf("thompson:seed=%d,spread=%v,draws=%d,max=%v", o.Seed, o.Spread, o.Draws, o.Max)
}

// Decide implements [model.Policy].
func (p *Thompson) Decide(f model.Features) model.Decision {
	b, why := p.observe(f)
	if b == nil {
		return hold(f, why)
	}
	can := reachable(p.choices, f)
	at := nearest(p.choices, current(f.Active))
	d := b.project(p.choices, can, ahead(f))
	draw := func() int {
		best, reward := can[0], math.Inf(-1)
		for k, r := range d.sample(b, p.options.Spread) {
			if can[k] == at {
				r += banditGain
			}
			if r > reward {
				best, reward = can[k], r
			}
		}
		return best
	}
	position := draw()
	wins := 1
	for range p.options.Draws {
		if draw() == position {
			wins++
		}
	}
	greedy, mean := can[0], math.Inf(-1)
	for k, i := range can {
		m := d.mean[k]
		if i == at {
			m += banditGain
		}
		if m > mean {
			greedy, mean = i, m
		}
	}
	return p.decide(b, f, chosen{
		position:   position,
		propensity: float64(wins) / float64(p.options.Draws+1),
		explores:   position != greedy,
		how:        fmt.Sprintf("best of one draw of the model (and of %d in %d) of %d", wins-1, p.options.Draws, len(can)),
	})
}

// projection is the posterior of the rewards of a few choices: their means, and
// the rows whose products with independent normal numbers have their
// covariance.
type projection struct {
	mean   []float64
	rows   [][]float64
	normal []float64
	out    []float64
}

// project returns the posterior of the rewards of choices at a load.
func (b *banditQueue) project(choices []time.Duration, can []int, packetRate float64) *projection {
	var lower mat.TriDense
	b.factor.LTo(&lower)
	d := &projection{normal: make([]float64, banditSize), out: make([]float64, len(can))}
	for _, i := range can {
		b.features(choices[i], packetRate)
		d.mean = append(d.mean, mat.Dot(b.x, b.mean))
		// With A = L L', A^-1 = L^-T L^-1: the row is L^-1 x.
		row := make([]float64, banditSize)
		for r := range banditSize {
			v := b.x.AtVec(r)
			for c := range r {
				v -= lower.At(r, c) * row[c]
			}
			row[r] = v / lower.At(r, r)
		}
		d.rows = append(d.rows, row)
	}
	return d
}

// sample draws the rewards once. The result is valid until the next call.
func (d *projection) sample(b *banditQueue, spread float64) []float64 {
	for i := range d.normal {
		d.normal[i] = b.random.NormFloat64()
	}
	for k, row := range d.rows {
		sum := 0.0
		for i, v := range row {
			sum += v * d.normal[i]
		}
		d.out[k] = d.mean[k] + spread*sum
	}
	return d.out
}
