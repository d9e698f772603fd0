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
type Random struct {
	seed  uint64
	limit time.Duration
	grid  []time.Duration
	draws map[model.Queue]*rand.Rand
}

func randomKind() Kind {
	return Kind{
		Name:    "random",
		Usage:   "random[:seed=1,max=200us]",
		Summary: "proposes a random setting in every window",
		keys:    []string{"seed", "max"},
		make: func(a *arguments) (model.Policy, error) {
			seed := a.seed()
			limit := a.duration("max", gridMost, gridStart, time.Second)
			if a.err != nil {
				return nil, a.err
			}
			return NewRandom(seed, limit), nil
		},
	}
}

// NewRandom returns a random policy over flush timeouts up to limit, which
// must be positive.
func NewRandom(seed uint64, limit time.Duration) *Random {
	return &Random{
		seed:  seed,
		limit: limit,
		grid:  choices(limit),
		draws: make(map[model.Queue]*rand.Rand),
	}
}

// Name implements [model.Policy].
func (p *Random) Name() string { return fmt.Sprintf("random:seed=%d,max=%v", p.seed, p.limit) }

// Decide implements [model.Policy].
func (p *Random) Decide(f model.Features) model.Decision {
	r, ok := p.draws[f.Queue]
	if !ok {
		r = rand.New(rand.NewPCG(p.seed, queueStream(f.Queue)))
		p.draws[f.Queue] = r
	}
	flush := p.grid[r.IntN(len(p.grid))]
	return model.Decision{
		Settings:   deferral(flush),
		Purpose:    model.PurposeExploration,
		Why:        fmt.Sprintf("drew flush %v out of %d", flush, len(p.grid)),
		Propensity: 1 / float64(len(p.grid)),
	}
}
