package sim

import (
	"context"
	"fmt"
	"slices"
)

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
		if l := robust(r); l < loss {
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
