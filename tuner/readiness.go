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
	if err := t.steerable(target); err != nil && r.moves() && r.verdict == model.VerdictApplied {
		return t.without(r, fmt.Sprintf("%v refused: %v", target.BusyPoll, err))
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
		return t.without(r, fmt.Sprintf("suspend %v refused: %v", target.IRQSuspendTimeout, err))
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

// without rules on a move that asks for what no application drives. An order is
// carried out by deferral alone, as it is where a suspension has to be taken
// back; a move that is to be judged by its effect would be judged by another's.
func (t *turn) without(r ruling, why string) ruling {
	rest := r.settings
	rest.IRQSuspendTimeout, rest.BusyPoll = 0, model.BusyPoll{}
	if r.verdict != model.VerdictApplied || r.purpose != model.PurposeOrder || rest == t.active || rest.Mode() != model.ModeDeferral {
		return t.deny(r, model.VerdictRefused, "readiness", why)
	}
	r.settings = rest
	r.guard = "readiness"
	r.why = fmt.Sprintf("by deferral alone, %s", why)
	return r
}

// steerable returns why the applications cannot be made to busy poll as the
// settings say.
func (t *turn) steerable(s model.Settings) error {
	if s.BusyPoll == (model.BusyPoll{}) || s.BusyPoll == t.active.BusyPoll {
		return nil
	}
	switch r := t.suspension(); {
	case r.Steered:
		return nil
	case r.Ready:
		return errors.New("applications prefer busy polling by themselves, and none was selected to be set")
	default:
		return errors.New(r.Why)
	}
}

// ready returns why the queue cannot be suspended with these settings.
func (t *turn) ready(s model.Settings) error {
	if s.Mode() != model.ModeSuspension {
		return errors.New("it has no effect without defer and flush")
	}
	r := t.suspension()
	switch {
	case !r.Ready:
		return errors.New(r.Why)
	case r.Steered && !s.BusyPoll.Prefer:
		return errors.New("the selected applications prefer busy polling only when the settings say so")
	}
	return nil
}

// drivable reports whether applications can be made to do what the settings ask
// of them, so that the readiness guard lets a move there pass.
func (t *turn) drivable(s model.Settings) bool {
	return t.steerable(s) == nil && (s.IRQSuspendTimeout == 0 || s == t.q.original || t.ready(s) == nil)
}

// suspension returns whether the queue may be suspended at all.
func (t *turn) suspension() model.Readiness {
	var id uint32
	if t.queue != nil {
		id = t.queue.NAPIID
	}
	return model.SuspensionReadiness(t.sample.Apps, id)
}
