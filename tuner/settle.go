package tuner

import (
	"errors"
	"fmt"

	"autotune/model"
)

// settle takes what became of a ruling.
func (l *Loop) settle(t *turn, r ruling, readback model.Config, failed map[model.Queue]*model.QueueError, fatal error) ruling {
	q := t.q
	switch {
	case !r.moves():
	case l.options.Actuator == nil:
		r.verdict = model.VerdictAdvised
	case failed[q.queue] != nil:
		r = l.failed(t, r, failed[q.queue])
	case fatal != nil:
		q.maybe = &r.settings
		r = t.deny(r, model.VerdictFailed, "actuator", fatal.Error())
	default:
		got, ok := readback[q.queue]
		if !ok {
			r = l.failed(t, r, &model.QueueError{Queue: q.queue, Op: "read back", Err: errors.New("the actuator gave no read-back")})
			break
		}
		r = l.applied(t, r, got)
	}
	if t.asked != nil && !t.skip && t.asked.verdict != model.VerdictHeld && q.outcome.Verdict == "" {
		q.outcome = model.Outcome{Verdict: r.verdict, Guard: r.guard, From: t.active, To: r.settings, Purpose: t.asked.purpose}
		if !r.own {
			q.outcome.Verdict = model.VerdictHeld
		}
		if q.outcome.Verdict != model.VerdictApplied {
			q.outcome.To = t.asked.proposed
		}
	}
	if t.asked != nil && !t.skip {
		q.promised(r)
	}
	if t.enough && !t.settling && q.settle == 0 && q.window.Windows() > 0 {
		q.restartWindow(t)
	}
	return r
}

func (l *Loop) applied(t *turn, r ruling, got model.Settings) ruling {
	q := t.q
	q.expected = got
	q.failures, q.retryAt = 0, 0
	if got != r.settings {
		q.wrote = q.wrote || got != t.active
		why := fmt.Sprintf("%v was written and %v is read back; %s", r.settings, got, r.why)
		r = t.deny(r, model.VerdictFailed, "actuator", why)
		r.settings = got
		l.backOff(q, nil)
		return r
	}
	q.wrote = true
	q.settle = max(0, l.options.Trial.Settle)
	q.madeFor = t.madeFor(r)
	q.restartWindow(t)
	before := q.reference
	if t.urgent {
		// The settling window is all that there is to compare with.
		before = []measure{measureOf(&t.raw, t.rawPackets)}
	}
	q.reference = nil
	q.breaches = 0
	q.audit = nil
	switch r.trial {
	case trialGrant:
		q.dropTrial()
		q.trialEnd = 0
		q.audit = &audit{
			purpose: r.purpose, anchor: t.active, at: got, before: before, answered: t.answers(before),
			kind: kindOf(t.active, got, r.purpose, t.merged.PacketRate),
		}
	case trialBegin:
		q.trial = &trial{
			purpose:     r.purpose,
			anchor:      t.active,
			kind:        kindOf(t.active, r.settings, r.purpose, t.merged.PacketRate),
			before:      t.alike(before),
			utilisation: t.merged.Utilisation,
		}
		q.trialLast = q.turns
	case trialExtend:
		q.trial.steps++
		q.trial.after = nil
	default:
		q.dropTrial()
	}
	return r
}

// failed takes a write that the kernel did not accept for one queue.
func (l *Loop) failed(t *turn, r ruling, err *model.QueueError) ruling {
	q := t.q
	q.maybe = &r.settings
	back := r.verdict == model.VerdictReverted || r.verdict == model.VerdictAborted
	target := r.settings
	r = t.deny(r, model.VerdictFailed, "actuator", err.Error())
	switch {
	case errors.Is(err, model.ErrForeignWrite):
		y := t.yieldTo(err)
		y.proposed, y.purpose, y.verdict = r.proposed, r.purpose, model.VerdictFailed
		q.lost = err
		return y
	case errors.Is(err, model.ErrGone), errors.Is(err, model.ErrReadOnly):
		q.dropTrial()
		q.lost = err
	case errors.Is(err, model.ErrLinkDown):
		q.dropTrial()
		l.backOff(q, nil)
	default:
		if back {
			q.retry = &target
		}
		l.backOff(q, err)
	}
	return r
}

// maxFailures is how often in a row the kernel may refuse before a queue is
// given up; busy does not count.
const maxFailures = 8

// backOff leaves a queue alone for a number of windows that doubles.
func (l *Loop) backOff(q *queueState, err error) {
	q.failures++
	q.retryAt = q.turns + 1 + 1<<min(q.failures-1, 6)
	if err != nil && !errors.Is(err, model.ErrBusy) && q.failures >= maxFailures {
		q.dropTrial()
		q.lost = err
	}
}

// split sorts the parts of an actuator's error by queue; what belongs to none
// is a failure of the whole.
func split(err error) (failed map[model.Queue]*model.QueueError, fatal error) {
	failed = make(map[model.Queue]*model.QueueError)
	var walk func(error) bool
	walk = func(e error) bool {
		//nolint:errorlint // the tree is walked here, node by node
		switch x := e.(type) {
		case *model.QueueError:
			failed[x.Queue] = x
			return true
		case interface{ Unwrap() []error }:
			whole := len(x.Unwrap()) > 0
			for _, part := range x.Unwrap() {
				whole = walk(part) && whole
			}
			return whole
		case interface{ Unwrap() error }:
			return x.Unwrap() != nil && walk(x.Unwrap())
		}
		return false
	}
	if err != nil && !walk(err) {
		fatal = err
	}
	return failed, fatal
}
