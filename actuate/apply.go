package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"autotune/model"
)

// Apply brings the queues of want to their settings and returns what all
// queues of the host are set to afterwards, read back. Queues that have the
// settings are not written.
//
// Failures of single queues are [model.QueueError] values, joined:
//
//   - [model.ErrOutOfBounds]: not written. The originals are always allowed.
//   - [model.ErrForeignWrite]: the queue is not set to what was last read
//     back, so another writer owns it; not written again until it is.
//   - [model.ErrGone], [model.ErrLinkDown]: no such queue now.
//   - [model.ErrReadOnly], [model.ErrBusy]: the kernel refused.
//   - [ErrOneSetting], [ErrNoSuspend]: not possible with [ScopeDevice].
//
// With [ScopeDevice] the setting of any queue is that of all queues of its
// device: those that want does not name follow, and where it names several,
// they must agree.
//
// Any other error means that nothing was written: the state could not be made
// durable, the host is closed or was restored, or ctx ended.
//
// With ReadOnly it only reads.
func (h *Host) Apply(ctx context.Context, want model.Config) (model.Config, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.restored {
		return nil, errors.New("apply: the originals were put back; open the host anew to tune again")
	}
	seen, err := h.observe(ctx)
	if seen == nil {
		return nil, err
	}
	active := model.Config{}
	for q, s := range seen {
		active[q] = s.settings
	}
	if h.readOnly {
		return active, err
	}
	// What ails a device that has no queue in this run stops no other.
	errs := queueErrors(err)
	refuse := func(queues []model.Queue, op string, err error) {
		for _, q := range queues {
			errs = append(errs, &model.QueueError{Queue: q, Op: op, Err: err})
		}
	}
	var moves []move
	for _, w := range h.wishes(want, seen) {
		m, err := h.plan(w)
		if err != nil {
			refuse(w.queues, "apply", err)
			continue
		}
		if m.from != m.to {
			moves = append(moves, m)
		}
	}
	if len(moves) == 0 {
		return active, errors.Join(errs...)
	}
	if err := ctx.Err(); err != nil {
		return active, err
	}
	if err := h.saveIntent(moves); err != nil {
		return active, fmt.Errorf("apply: nothing was written: %w", err)
	}
	for _, m := range moves {
		after, err := h.carryOut(m)
		for _, q := range m.t.queues {
			if _, present := seen[q]; present && after != nil {
				active[q] = *after
			} else {
				delete(active, q)
			}
		}
		if err != nil {
			refuse(m.queues, h.target(m.t).op(), err)
		}
	}
	return active, errors.Join(errs...)
}

// queueErrors returns those parts of a joined error that are about single
// queues.
func queueErrors(err error) []error {
	var queue *model.QueueError
	switch joined, ok := err.(interface{ Unwrap() []error }); {
	case err == nil:
		return nil
	case ok:
		var out []error
		for _, part := range joined.Unwrap() {
			out = append(out, queueErrors(part)...)
		}
		return out
	case errors.As(err, &queue):
		return []error{err}
	}
	return nil
}

// wish is what is wanted of one unit.
type wish struct {
	t *tracked
	// queues are those that want it.
	queues   []model.Queue
	from, to model.Settings
	// err says why they cannot all have it.
	err error
}

// wishes sorts what is wanted by unit. Queues that are not there are left out:
// observe has said why.
func (h *Host) wishes(want model.Config, seen map[model.Queue]sighting) []wish {
	var out []wish
	at := map[model.Queue]int{}
	for _, q := range slices.SortedFunc(maps.Keys(want), model.Queue.Compare) {
		s, present := seen[q]
		t := h.unit(q)
		if !present && t != nil {
			continue
		}
		i, known := at[h.key(q)]
		if !known {
			i = len(out)
			at[h.key(q)] = i
			out = append(out, wish{t: t, from: s.settings, to: want[q]})
		}
		w := &out[i]
		if w.to != want[q] && w.err == nil {
			w.err = fmt.Errorf("%w, and queue %d is to have %v while queue %d is to have %v",
				ErrOneSetting, w.queues[0].Index, w.to, q.Index, want[q])
		}
		w.queues = append(w.queues, q)
	}
	return out
}

// move is one unit to be written.
type move struct {
	t        *tracked
	queues   []model.Queue
	from, to model.Settings
}

// plan decides whether and what a unit may be written.
func (h *Host) plan(w wish) (move, error) {
	t := w.t
	switch {
	case t == nil:
		return move{}, fmt.Errorf("the queue was not there when the run began, so its original is not kept; start anew to tune it: %w", model.ErrReadOnly)
	case t.untunable != nil:
		return move{}, t.untunable
	case t.yielded != nil && !t.ownsAll(w.from):
		return move{}, t.yielded
	case w.err != nil:
		return move{}, w.err
	case h.scope == ScopeDevice && w.to.IRQSuspendTimeout != 0:
		return move{}, fmt.Errorf("suspend %v refused: %w (irq-suspend-timeout came with Linux 6.13)", w.to.IRQSuspendTimeout, ErrNoSuspend)
	}
	if err := h.withinBounds(t.original, w.to); err != nil {
		return move{}, err
	}
	if !t.ownsAll(w.from) {
		t.yielded = foreign(t.expected, w.from)
		return move{}, t.yielded
	}
	// Whoever had taken it has put back what we left.
	t.yielded, t.expected, t.unconfirmed = nil, w.from, nil
	return move{t: t, queues: w.queues, from: w.from, to: w.to}, nil
}

// withinBounds checks the values that are not the original's own.
func (h *Host) withinBounds(original, to model.Settings) error {
	checked := to
	for _, k := range knobs() {
		if k.of(to) == k.of(original) {
			checked = k.with(checked, 0)
		}
	}
	return h.bounds.Check(checked)
}

// saveIntent makes durable what each unit is set to and about to be set to.
func (h *Host) saveIntent(moves []move) error {
	next := &intent{Version: stateVersion, BootID: h.base.BootID}
	if h.last != nil {
		next.Contexts = h.last.Contexts
	}
	moving := map[model.Queue]model.Settings{}
	for _, m := range moves {
		moving[m.t.key] = m.to
	}
	for _, q := range slices.SortedFunc(maps.Keys(h.units), model.Queue.Compare) {
		t := h.units[q]
		before := h.last.queue(q)
		to, moves := moving[q]
		if !moves && before == nil {
			continue
		}
		if !moves && (t.yielded != nil || t.unconfirmed != nil) {
			next.Queues = append(next.Queues, *before)
			continue
		}
		confirmed := t.expected
		if !moves {
			to = confirmed
		}
		next.Queues = append(next.Queues, intentQueue{Queue: q, NAPIID: t.id, Confirmed: &confirmed, Intended: &to})
	}
	if err := h.files.save(intentFile, next); err != nil {
		return err
	}
	h.last = next
	return nil
}

// carryOut writes one unit and reads it back. It returns nil settings where
// that was not possible.
func (h *Host) carryOut(m move) (*model.Settings, error) {
	t := m.t
	target := h.target(t)
	// Making the intent durable took its time, so look once more.
	now, err := target.read()
	if err != nil {
		return nil, err
	}
	if now != m.from {
		t.yielded = foreign(m.from, now)
		return &now, t.yielded
	}
	h.files.at(target.op())
	writeErr := target.write(m.from, m.to)
	t.unconfirmed = &m.to
	after, err := target.read()
	if err != nil {
		return nil, errors.Join(writeErr, err)
	}
	for _, k := range knobs() {
		if v := k.of(after); v != k.of(m.to) && (writeErr == nil || v != k.of(m.from)) {
			t.yielded = foreign(m.to, after)
			return &after, errors.Join(writeErr, t.yielded)
		}
	}
	t.expected, t.unconfirmed = after, nil
	return &after, writeErr
}

// Yielded returns the queues that were left to another writer, and why.
func (h *Host) Yielded() map[model.Queue]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := map[model.Queue]error{}
	for _, t := range h.units {
		for _, q := range t.queues {
			if t.yielded != nil {
				out[q] = t.yielded
			}
		}
	}
	return out
}
