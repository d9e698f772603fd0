package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"autotune/actuate/busypoll"
	"autotune/model"
)

// contextMove is one context to be written; at is its place among the granted.
type contextMove struct {
	at       int
	t        *trackedContext
	wish     Wish
	from, to busypoll.Params
}

// saveContexts makes durable what each context is set to and about to be.
func (a *Applications) saveContexts(moves []contextMove) error {
	next := &intent{Version: stateVersion, BootID: a.bootID}
	if a.last != nil {
		next.Queues = a.last.Queues
		next.Contexts = slices.Clone(a.last.Contexts)
	}
	for _, m := range moves {
		key := m.t.handles[0].Key()
		record := intentContext{Key: key, Confirmed: &m.from, Intended: &m.to}
		at := slices.IndexFunc(next.Contexts, func(c intentContext) bool { return c.Key == key })
		if at < 0 {
			next.Contexts = append(next.Contexts, record)
		} else {
			next.Contexts[at] = record
		}
	}
	if err := a.files.save(intentFile, next); err != nil {
		return err
	}
	a.last = next
	return nil
}

// swap writes one context by whichever of its descriptors still leads there.
func (a *Applications) swap(m contextMove) (*busypoll.Params, error) {
	t := m.t
	var err error
	for _, h := range t.handles {
		var now busypoll.Params
		now, err = a.system.Processes().Swap(h, m.from, m.to)
		if errors.Is(err, busypoll.ErrVanished) {
			continue
		}
		if err != nil {
			// Read back or not, one of the two it is.
			t.unconfirmed = &m.to
			return nil, err
		}
		if now != m.to {
			t.unconfirmed = &m.to
			t.yielded = fmt.Errorf("%v of %s: expected %v, found %v: %w", h, t.comm, m.from, now, model.ErrForeignWrite)
			return &now, t.yielded
		}
		t.expected, t.unconfirmed = now, nil
		return &now, nil
	}
	delete(a.tracked, t.handles[0].Key())
	return nil, err
}

// confirm makes durable that the moves were carried out.
func (a *Applications) confirm(ctx context.Context, moves []contextMove) error {
	if err := a.identify(ctx, moves); err != nil {
		return err
	}
	var done []contextMove
	for _, m := range moves {
		if m.t.unconfirmed == nil && m.t.expected == m.to {
			m.from = m.to
			done = append(done, m)
		}
	}
	if len(done) == 0 {
		return nil
	}
	return a.saveContexts(done)
}

// identify makes sure that what was written is what was meant: a process may
// have closed a context and opened another under its number in between. The
// record is then corrected to be of the one that was written.
func (a *Applications) identify(ctx context.Context, moves []contextMove) error {
	var pids []int
	for _, m := range moves {
		if h := m.t.handles[0]; h.Kind == busypoll.KindEpoll && h.Object != 0 {
			pids = append(pids, h.PID)
		}
	}
	if len(pids) == 0 {
		return nil
	}
	rows, err := a.system.Processes().List(ctx, pids, false)
	if err != nil || !addresses(rows) {
		// Restoring looks at the number too.
		return nil
	}
	var moved []contextMove
	for _, m := range moves {
		old := m.t.handles[0]
		same := func(d busypoll.Descriptor) bool {
			return d.Key() == old.Key() && slices.ContainsFunc(m.t.handles, d.SameProcess)
		}
		if old.Object == 0 || m.t.expected != m.to || slices.ContainsFunc(rows, same) {
			continue
		}
		i := slices.IndexFunc(rows, func(d busypoll.Descriptor) bool { return d.SameDescriptor(old) })
		if i < 0 {
			continue
		}
		delete(a.tracked, old.Key())
		m.t.handles = []busypoll.Handle{rows[i].Handle}
		a.tracked[rows[i].Key()] = m.t
		m.at = len(moved)
		moved = append(moved, m)
	}
	if len(moved) == 0 {
		return nil
	}
	return errors.Join(a.saveOriginals(moved, make([]Granted, len(moved))), a.saveContexts(moved))
}
