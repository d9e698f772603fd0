package sim

import (
	"context"
	"fmt"
	"slices"
)

// luck is how much smaller a loss of the cells that interrupts drive can be
// without being better: their tails differ by several percent between seeds.
const luck = 0.03

// climb is an evolution strategy with one parent and one child (Rechenberg's
// rule for its step), which needs no slopes. A round is 16 children.
func (o *FitOptions) climb(ctx context.Context) (*Preset, error) {
	const children = 16
	x := o.units()
	if err := o.weigh(ctx, x); err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	r, err := o.residuals(ctx, x)
	if err != nil {
		return nil, fmt.Errorf("fit: %w", err)
	}
	loss := robust(r)
	random := newRandom(o.Seed, 'c')
	step := 0.08
	for i := range o.Rounds * children {
		if o.Progress != nil && i%children == 0 {
			o.Progress(i/children, loss, o.preset(x))
		}
		next := slices.Clone(x)
		for j := range next {
			if random.float() < 0.5 {
				next[j] = min(max(next[j]+step*random.normal(), 0), 1)
			}
		}
		r, err := o.residuals(ctx, next)
		if err != nil {
			return nil, fmt.Errorf("fit: %w", err)
		}
		l := robust(r)
		better := l < loss*(1-luck)
		if better {
			if better, err = o.confirms(ctx, x, next); err != nil {
				return nil, fmt.Errorf("fit: %w", err)
			}
		}
		if better {
			x, loss = next, l
			step = min(step*1.5, 0.2)
		} else {
			step = max(step*0.93, 0.02)
		}
	}
	if o.Progress != nil {
		o.Progress(o.Rounds, loss, o.preset(x))
	}
	return o.preset(x), nil
}

// confirms reports whether next is better than x on other random numbers too.
func (o *FitOptions) confirms(ctx context.Context, x, next []float64) (bool, error) {
	other := *o
	other.Seed = mix64(o.Seed + goldenGamma)
	before, err := other.residuals(ctx, x)
	if err != nil {
		return false, err
	}
	after, err := other.residuals(ctx, next)
	if err != nil {
		return false, err
	}
	return robust(after) < robust(before)*(1-luck), nil
}
