package policy

import (
	"fmt"
	"math/rand/v2"
	"time"

	"autotune/model"
)

// Random proposes a uniformly random setting in every window: plain
// interrupts, or a flush timeout of the grid. It is the reference for what the
// guards prevent and for how little luck wins.
//
// With a number of windows for each draw it is an experiment that the operator
// orders, as a static setting is ordered: every draw is applied, whatever it
// costs, which is what makes a recording of it tell what each choice does.
type Random struct {
	seed  uint64
	limit time.Duration
	step  float64
	grid  []time.Duration
	every int
	draws map[model.Queue]*draw
}

// draw is what a queue has drawn.
type draw struct {
	random *rand.Rand
	flush  time.Duration
	// left is for how many windows more it stays.
	left int
}

func randomKind() Kind {
	return Kind{
		Name:    "random",
		Usage:   "random[:seed=1,max=200us,step=1.25,every=N]",
		Summary: "proposes a random setting in every window",
		keys:    []string{"seed", "max", "step", "every"},
		make: func(a *arguments) (model.Policy, error) {
			seed := a.seed()
			limit := a.duration("max", gridMost, gridStart, time.Second)
			step := a.number("step", gridStep, 1.05, 100)
			every := a.count("every", 0, 2, 1000)
			if a.err != nil {
				return nil, a.err
			}
			return NewRandom(seed, limit, step, every), nil
		},
	}
}

// NewRandom returns a random policy over flush timeouts up to limit, which
// must be positive, each by a factor of step, which must be above 1, from the
// one before: the fewer there are, the sooner each was tried often. Where every
// is not zero, a draw is ordered for so many windows.
func NewRandom(seed uint64, limit time.Duration, step float64, every int) *Random {
	return &Random{
		seed:  seed,
		limit: limit,
		step:  step,
		every: every,
		grid:  append([]time.Duration{0}, gridOf(limit, step)...),
		draws: make(map[model.Queue]*draw),
	}
}

// Name implements [model.Policy].
func (p *Random) Name() string {
	name := fmt.Sprintf("random:seed=%d,max=%v", p.seed, p.limit)
	if p.step != gridStep {
		name += fmt.Sprintf(",step=%g", p.step)
	}
	if p.every != 0 {
		name += fmt.Sprintf(",every=%d", p.every)
	}
	return name
}

// NeedsEvidence tells the loop whether the policy waits for evidence.
func (p *Random) NeedsEvidence() bool { return p.every == 0 }

// Memoryless reports that what is decided does not depend on what came of
// earlier decisions.
func (p *Random) Memoryless() bool { return true }

// Decide implements [model.Policy].
func (p *Random) Decide(f model.Features) model.Decision {
	d, ok := p.draws[f.Queue]
	if !ok {
		d = &draw{random: rand.New(rand.NewPCG(p.seed, queueStream(f.Queue)))}
		p.draws[f.Queue] = d
	}
	if d.left == 0 {
		d.flush = p.grid[d.random.IntN(len(p.grid))]
		d.left = max(p.every, 1)
	}
	d.left--
	out := model.Decision{
		Settings:   deferral(d.flush),
		Purpose:    model.PurposeExploration,
		Why:        fmt.Sprintf("drew flush %v out of %d", d.flush, len(p.grid)),
		Propensity: 1 / float64(len(p.grid)),
	}
	if p.every != 0 {
		out.Purpose = model.PurposeOrder
		out.Why += fmt.Sprintf(" for %s", model.Count(p.every, "window"))
	}
	return out
}
