package actuate

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"autotune/actuate/busypoll"
	"autotune/model"
)

// Applications sets how epoll contexts and sockets of running processes busy
// poll, with the guarantees of [Host]: the originals and each intended value
// are on disk before it is written, a value of another writer is left to that
// writer, and two runs never own one process.
type Applications struct {
	*ledger
	// owns tells that the ledger is not a Host's.
	owns      bool
	tracked   map[busypoll.Handle]*trackedContext
	recovered []Report
}

// trackedContext is what is known of a context or socket that was written.
type trackedContext struct {
	handles  []busypoll.Handle
	comm     string
	original busypoll.Params
	// expected was read back last; unconfirmed was sent, but not read back
	// since.
	expected    busypoll.Params
	unconfirmed *busypoll.Params
	// remembered is what is known from the state alone: a run that was taking
	// the process over may have put the original back and been killed then.
	remembered bool
	// yielded says why it belongs to another writer now.
	yielded error
}

func (t *trackedContext) owns(present busypoll.Params) bool {
	for _, n := range busypoll.Parameters() {
		v := n.Of(present)
		ours := v == n.Of(t.expected) || t.unconfirmed != nil && v == n.Of(*t.unconfirmed) || t.remembered && v == n.Of(t.original)
		if !ours {
			return false
		}
	}
	return true
}

// OpenApplications takes over a state directory, in which originals may be
// kept already: to those it adds. An empty runDir is [DefaultRunDir], and a nil
// system this machine. The caller must Close it; what was set stays, for
// [Restore] to put back.
func OpenApplications(ctx context.Context, system System, stateDir, runDir string) (*Applications, error) {
	if system == nil {
		system = Live{}
	}
	a := &Applications{ledger: &ledger{}, owns: true}
	if err := a.open(ctx, system, stateDir, runDir); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Applications) open(ctx context.Context, system System, stateDir, runDir string) error {
	if _, err := a.takeState(system, stateDir, runDir); err != nil {
		return err
	}
	a.tracked = map[busypoll.Handle]*trackedContext{}
	base, last, err := a.files.load()
	switch {
	case errors.Is(err, errNoState):
		return nil
	case err != nil:
		return err
	case base.BootID != a.bootID:
		return a.files.archive()
	}
	if a.placed, err = a.files.loadPlaced(base); err != nil {
		return err
	}
	a.base, a.last = base, last
	for i := range base.Contexts {
		c := &base.Contexts[i]
		record := last.context(c.key())
		if record == nil {
			continue
		}
		t := &trackedContext{handles: c.Handles, comm: c.Comm, original: *c.Original, expected: *record.Confirmed, remembered: true}
		if *record.Intended != t.expected {
			t.unconfirmed = record.Intended
		}
		a.tracked[c.key()] = t
	}
	if len(a.tracked) == 0 {
		return nil
	}
	// Addresses of contexts that are gone may be others' by now. A listing
	// without addresses confuses none.
	rows, err := system.Processes().List(ctx, nil, false)
	if err != nil {
		return fmt.Errorf("list applications: %w", err)
	}
	if !addresses(rows) {
		return nil
	}
	return a.forget(rows)
}

// Applications returns what sets the applications of a run that tunes: their
// originals go into the same state, and [Host.Restore] puts them back after the
// queues. It is nil with ReadOnly.
func (h *Host) Applications() *Applications {
	if h.readOnly {
		return nil
	}
	return &Applications{ledger: &h.ledger, tracked: map[busypoll.Handle]*trackedContext{}}
}

// Close gives up the locks of [OpenApplications].
func (a *Applications) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.owns || a.held == nil {
		return nil
	}
	var err error
	if a.untouched() {
		var report Report
		err = settle(&report, a.files, a.base, a.held)
	}
	return errors.Join(err, a.held.release())
}

// Wish is a context or socket, and what it is to be set to.
type Wish struct {
	Descriptor busypoll.Descriptor
	// To returns what is wanted, given what is set.
	To func(present busypoll.Params) busypoll.Params
}

// Granted is what became of a [Wish].
type Granted struct {
	Descriptor busypoll.Descriptor
	// From was found and Now was read back; nil where they could not be read.
	From, Now *busypoll.Params
	// Err wraps [busypoll.ErrVanished] where there is nothing to set any
	// more, [model.ErrForeignWrite] where another writer owns it, or is a
	// [busypoll.Error] or [LockedError].
	Err error
}

// Apply sets what is wished for, and returns what became of each wish that is
// not a further descriptor of one before. What has the value is not written,
// but that a child has come to share a context is made durable. Without granted
// wishes the error means that nothing was written; with them, that what was
// written could not be noted down: it can be put back all the same.
func (a *Applications) Apply(ctx context.Context, wishes []Wish) ([]Granted, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	granted, moves := a.plan(wishes)
	if len(moves) == 0 {
		return granted, nil
	}
	if err := a.own(ctx, granted, moves); err != nil {
		return nil, fmt.Errorf("set busy-poll parameters: nothing was written: %w", err)
	}
	moves = slices.DeleteFunc(moves, func(m contextMove) bool { return granted[m.at].Err != nil })
	// What is left moves nothing, but has further descriptors.
	moves = slices.DeleteFunc(moves, func(m contextMove) bool { return m.from == m.to })
	if len(moves) == 0 {
		return granted, nil
	}
	if err := a.saveContexts(moves); err != nil {
		return nil, fmt.Errorf("set busy-poll parameters: nothing was written: %w", err)
	}
	for _, m := range moves {
		a.files.at("set a context")
		granted[m.at].Now, granted[m.at].Err = a.swap(m)
	}
	return granted, a.confirm(ctx, moves)
}

// plan reads what is set and decides what is to be written. A context that is
// reached for the first time is tracked from here on.
func (a *Applications) plan(wishes []Wish) ([]Granted, []contextMove) {
	var granted []Granted
	var moves []contextMove
	at := map[busypoll.Handle]int{}
	for _, w := range wishes {
		key := w.Descriptor.Key()
		if i, known := at[key]; known {
			// Another descriptor of the same.
			if t := a.tracked[key]; t != nil && granted[i].Err == nil {
				t.reachedBy(w.Descriptor.Handle)
				if !slices.ContainsFunc(moves, func(m contextMove) bool { return m.at == i }) && !a.recorded(t) {
					moves = append(moves, contextMove{at: i, t: t, wish: w, from: t.expected, to: t.expected})
				}
			}
			continue
		}
		at[key] = len(granted)
		g := Granted{Descriptor: w.Descriptor}
		m, err := a.planOne(w, &g)
		switch {
		case err != nil:
			g.Err = err
		case m.t != nil && (m.from != m.to || !a.recorded(m.t)):
			m.at = len(granted)
			moves = append(moves, m)
		}
		granted = append(granted, g)
	}
	return granted, moves
}

func (a *Applications) planOne(w Wish, g *Granted) (contextMove, error) {
	d := &w.Descriptor
	present, err := a.read(d)
	if err != nil {
		return contextMove{}, err
	}
	g.From, g.Now = &present, &present
	to := w.To(present)
	t := a.tracked[d.Key()]
	switch {
	case t == nil && present == to:
		return contextMove{}, nil
	case t == nil:
		t = &trackedContext{handles: []busypoll.Handle{d.Handle}, comm: d.Comm, original: present, expected: present}
		a.tracked[d.Key()] = t
	case !t.owns(present):
		if t.yielded == nil {
			t.yielded = fmt.Errorf("%v of %s: expected %v, found %v: %w", d.Handle, d.Comm, t.expected, present, model.ErrForeignWrite)
		}
		return contextMove{}, t.yielded
	}
	t.reachedBy(d.Handle)
	t.yielded, t.expected, t.unconfirmed, t.remembered = nil, present, nil, false
	return contextMove{t: t, wish: w, from: present, to: to}, nil
}

func (a *Applications) read(d *busypoll.Descriptor) (busypoll.Params, error) {
	if d.Params != nil {
		return *d.Params, nil
	}
	return a.system.Processes().Get(d.Handle)
}

func (t *trackedContext) reachedBy(h busypoll.Handle) {
	if !slices.Contains(t.handles, h) {
		t.handles = append(t.handles, h)
	}
}

// Originals returns what each context that was written and is still known was
// set to before, by [busypoll.Handle.Key].
func (a *Applications) Originals() map[busypoll.Handle]busypoll.Params {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make(map[busypoll.Handle]busypoll.Params, len(a.tracked))
	for key, t := range a.tracked {
		out[key] = t.original
	}
	return out
}

// Forget drops what is known of contexts that no longer exist, given a listing
// of all that do, and gives up the locks of processes that have exited.
func (a *Applications) Forget(rows []busypoll.Descriptor) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.forget(rows)
}

func (a *Applications) forget(rows []busypoll.Descriptor) error {
	lost := map[busypoll.Handle]bool{}
	for key, t := range a.tracked {
		if key.Kind == busypoll.KindSocket || a.exists(key, t, rows) {
			continue
		}
		for _, h := range t.handles {
			lost[busypoll.Handle{PID: h.PID, Start: h.Start}] = true
		}
		delete(a.tracked, key)
	}
	for _, t := range a.tracked {
		for _, h := range t.handles {
			delete(lost, busypoll.Handle{PID: h.PID, Start: h.Start})
		}
	}
	for i := range rows {
		delete(lost, busypoll.Handle{PID: rows[i].PID, Start: rows[i].Start})
	}
	var errs []error
	for process := range lost {
		path := a.held.processPath(process)
		if l, held := a.held.held[path]; held {
			errs = append(errs, l.forgetOf(a.files.dir), a.held.drop(path, l))
		}
	}
	return errors.Join(errs...)
}

// exists reports whether a listing has a context. Its address may be that of
// another one by now, of a process that was not seen to hold it: a child that
// has come to share it shows what it was set to.
func (a *Applications) exists(key busypoll.Handle, t *trackedContext, rows []busypoll.Descriptor) bool {
	for i := range rows {
		d := &rows[i]
		inherited := d.Params != nil && *d.Params == t.expected && t.expected != t.original
		if d.Key() == key && (slices.ContainsFunc(t.handles, d.SameProcess) || inherited) {
			return true
		}
	}
	// The walk that a listing is may miss a process.
	return slices.ContainsFunc(t.handles, func(h busypoll.Handle) bool {
		if slices.ContainsFunc(rows, func(d busypoll.Descriptor) bool { return d.SameDescriptor(h) }) {
			return false
		}
		_, err := a.system.Processes().Get(h)
		return !errors.Is(err, busypoll.ErrVanished)
	})
}
