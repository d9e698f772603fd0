package tuner

import (
	"fmt"
	"time"

	"autotune/model"
)

// ownershipGuard yields a queue that another writer has changed. Restoring
// touches only what autotune wrote, so a foreign value is never taken as a new
// start once the loop has written to the queue.
type ownershipGuard struct{}

// yield is the state of a queue that another writer holds.
type yield struct {
	until   time.Duration
	backoff time.Duration
	held    bool
}

func (ownershipGuard) rule(t *turn, next func() ruling) ruling {
	q := t.q
	foreign := q.wrote && t.active != q.expected
	switch {
	case q.yield.held && foreign:
		return t.hold("ownership", fmt.Sprintf("yielded to another writer; reads %v, last written was %v", t.active, q.expected))
	case q.yield.held && t.sample.At < q.yield.until:
		return t.hold("ownership", fmt.Sprintf("reads what was last written again; left alone for %v more", q.yield.until-t.sample.At))
	case q.yield.held:
		q.yield.held = false
		q.lost = nil
		q.restart(t)
		return t.hold("ownership", fmt.Sprintf("taken back: it reads what was last written, %v", t.active))
	case foreign:
		return t.yieldTo(fmt.Errorf("reads %v, last written was %v: %w", t.active, q.expected, model.ErrForeignWrite))
	case t.active != q.expected:
		was := q.expected
		q.expected = t.active
		q.restart(t)
		return t.hold("ownership", fmt.Sprintf("another writer changed %v to %v before anything was written here; starting from there", was, t.active))
	}
	return next()
}

// yieldTo leaves the queue to another writer.
func (t *turn) yieldTo(err error) ruling {
	q := t.q
	q.dropTrial()
	if q.yield.backoff == 0 {
		q.yield.backoff = t.loop.options.Ownership.Backoff
	} else if q.yield.backoff < 24*time.Hour {
		q.yield.backoff *= 2
	}
	q.yield.held = true
	q.yield.until = t.sample.At + q.yield.backoff
	q.lost = &model.QueueError{Queue: q.queue, Op: "read back", Err: err}
	r := t.hold("ownership", fmt.Sprintf("%v; yielding it for at least %v", err, q.yield.backoff))
	r.verdict = model.VerdictRefused
	return r
}
