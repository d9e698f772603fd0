package probe

import (
	"errors"

	"autotune/model"
)

// unreadQueues is what an inventory could not read: single queues, and what is
// tied to none.
type unreadQueues struct {
	queues map[model.Queue]error
	all    error
}

// transient reports whether the NAPI behind a queue that was not listed may
// still be there.
func (u unreadQueues) transient(key model.Queue) bool {
	err, ok := u.queues[key]
	if !ok {
		return u.all != nil
	}
	return !errors.Is(err, model.ErrGone) && !errors.Is(err, model.ErrLinkDown)
}

// failedQueues takes joined errors apart.
func failedQueues(err error) unreadQueues {
	u := unreadQueues{queues: make(map[model.Queue]error)}
	u.add(err)
	return u
}

func (u *unreadQueues) add(err error) {
	switch e := err.(type) { //nolint:errorlint // the tree is walked node by node
	case nil:
	case *model.QueueError:
		u.queues[e.Queue] = e
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			u.add(part)
		}
	default:
		var single *model.QueueError
		if errors.As(err, &single) {
			u.queues[single.Queue] = err
			return
		}
		u.all = errors.Join(u.all, err)
	}
}
