package policy

import (
	"fmt"
	"math"
	"time"

	"gonum.org/v1/gonum/blas"
	"gonum.org/v1/gonum/blas/blas64"
	"gonum.org/v1/gonum/floats"
	"gonum.org/v1/gonum/lapack/lapack64"

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
	// drawn is what a decision draws from.
	drawn projection
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
	p.drawn.project(b, p.choices, can, ahead(f))
	d := &p.drawn
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
// the lower factor of their covariance, row by row.
type projection struct {
	mean, factor []float64
	roots        []banditRoot
	normal, out  []float64
}

// drawnJitter is added to the variances: choices between the same knots depend on
// each other, so that otherwise rounding decides whether there is a factor. Its
// deviation is far below any gain that counts.
const drawnJitter = 1e-12

// project fills in the posterior of the rewards of choices at a load.
func (d *projection) project(b *banditQueue, choices []time.Duration, can []int, packetRate float64) {
	n := len(can)
	load := b.relative(packetRate)
	d.mean, d.out, d.normal = resized(d.mean, n), resized(d.out, n), resized(d.normal, n)
	d.factor, d.roots = resized(d.factor, n*n), resized(d.roots, n)
	for k, i := range can {
		d.mean[k], _ = b.model.predict(featuresAt(choices[i], load), &d.roots[k])
		for j := range k + 1 {
			d.factor[k*n+j] = floats.Dot(d.roots[k][:], d.roots[j][:])
		}
		d.factor[k*n+k] += drawnJitter
	}
	_, ok := lapack64.Potrf(blas64.Symmetric{Uplo: blas.Lower, N: n, Data: d.factor, Stride: n})
	if !ok {
		// Without a factor each is drawn by itself.
		clear(d.factor)
		for k := range n {
			d.factor[k*n+k] = floats.Norm(d.roots[k][:], 2)
		}
	}
}

// sample draws the rewards once. The result is valid until the next call.
func (d *projection) sample(b *banditQueue, spread float64) []float64 {
	n := len(d.mean)
	for i := range d.normal {
		d.normal[i] = b.random.NormFloat64()
	}
	for k := range n {
		sum := 0.0
		for i, v := range d.factor[k*n : k*n+k+1] {
			sum += v * d.normal[i]
		}
		d.out[k] = d.mean[k] + spread*sum
	}
	return d.out
}

// resized returns a slice of n elements in the room of another, whatever they
// hold.
func resized[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
