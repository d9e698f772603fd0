package tuner

import (
	"errors"
	"fmt"

	"autotune/model"
)

// readinessGuard allows suspension only while an application drives the NAPI:
// otherwise nothing polls until the suspend timeout ends.
type readinessGuard struct{}

func (readinessGuard) rule(t *turn, next func() ruling) ruling {
	r := next()
	target := t.active
	if r.moves() {
		target = r.settings
	}
	if target.IRQSuspendTimeout == 0 {
		return r
	}
	err := t.ready(target)
	switch {
	case err == nil, r.moves() && target == t.q.original:
		// The original is what the administrator chose.
		return r
	case r.verdict == model.VerdictReverted || r.verdict == model.VerdictAborted:
		// Going back must not fail for what is no longer possible there.
		r.settings.IRQSuspendTimeout = 0
		return r
	case r.moves():
		return t.deny(r, model.VerdictRefused, "readiness", fmt.Sprintf("suspend %v refused: %v", target.IRQSuspendTimeout, err))
	case t.q.wrote && t.active.IRQSuspendTimeout != t.q.original.IRQSuspendTimeout && !r.moves():
		t.q.dropTrial()
		safe := t.active
		safe.IRQSuspendTimeout = 0
		return ruling{
			settings: safe,
			proposed: r.proposed,
			purpose:  model.PurposeSafety,
			why:      fmt.Sprintf("suspend is taken back: %v", err),
			verdict:  model.VerdictApplied,
			guard:    "readiness",
		}
	}
	return r
}

// ready returns why the queue cannot be suspended with these settings.
func (t *turn) ready(s model.Settings) error {
	switch {
	case s.Mode() != model.ModeSuspension:
		return errors.New("it has no effect without defer and flush")
	case t.sample.Apps == nil:
		return errors.New("applications were not observed")
	case t.queue == nil || t.queue.NAPIID == 0:
		return errors.New("the NAPI ID of the queue is not known")
	}
	id := t.queue.NAPIID
	found := false
	for i := range t.sample.Apps {
		app := &t.sample.Apps[i]
		for j := range app.Contexts {
			c := &app.Contexts[j]
			mine, others := false, false
			for _, n := range c.NAPIIDs {
				mine = mine || n == id
				others = others || n != id
			}
			if !mine || !c.Prefer {
				continue
			}
			if others {
				return fmt.Errorf("epoll context %d of %s (pid %d) mixes sockets of NAPIs %v, and the others would stall", c.FD, app.Comm, app.PID, c.NAPIIDs)
			}
			found = true
		}
	}
	if !found {
		return fmt.Errorf("no application prefers busy polling on NAPI %d", id)
	}
	return nil
}
