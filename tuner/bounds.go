package tuner

import (
	"fmt"

	"autotune/model"
)

// boundsGuard keeps every value within the hard limits: what is too large
// saturates, what is not a setting, or was ordered as it is, is refused.
type boundsGuard struct{}

func (boundsGuard) rule(t *turn, next func() ruling) ruling {
	r := next()
	if !r.moves() {
		return r
	}
	b := t.loop.options.Bounds
	err := b.Check(r.settings)
	if err == nil {
		if r.own {
			t.q.atLimit = false
		}
		return r
	}
	if r.purpose == model.PurposeOrder || r.settings.GROFlushTimeout < 0 || r.settings.IRQSuspendTimeout < 0 {
		return t.deny(r, model.VerdictRefused, "bounds", err.Error())
	}
	r.settings, _ = b.Clamp(r.settings)
	r.guard = "bounds"
	reported := t.q.atLimit
	t.q.atLimit = true
	switch {
	case r.settings == t.active && reported:
		return t.deny(r, model.VerdictHeld, "bounds", fmt.Sprintf("still at limit: %v", err))
	case r.settings == t.active:
		return t.deny(r, model.VerdictRefused, "bounds", fmt.Sprintf("at limit: %v", err))
	case !reported:
		r.why = fmt.Sprintf("at limit: %v; %s", err, r.why)
	}
	return r
}
