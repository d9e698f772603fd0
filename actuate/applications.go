package actuate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
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
	// yielded says why it belongs to another writer now.
	yielded error
}

func (t *trackedContext) owns(present busypoll.Params) bool {
	for _, n := range busypoll.Parameters() {
		v := n.Of(present)
		if v != n.Of(t.expected) && (t.unconfirmed == nil || v != n.Of(*t.unconfirmed)) {
			return false
		}
	}
	return true
}

// OpenApplications takes over a state directory, in which originals may be
// kept already: to those it adds. An empty runDir is [DefaultRunDir], and a nil
// system this machine. The caller must Close it; what was set stays, for
// [Restore] to put back.
func OpenApplications(system System, stateDir, runDir string) (*Applications, error) {
	if system == nil {
		system = Live{}
	}
	a := &Applications{ledger: &ledger{}, owns: true}
	if err := a.open(system, stateDir, runDir); err != nil {
		return nil, errors.Join(err, a.Close())
	}
	return a, nil
}

func (a *Applications) open(system System, stateDir, runDir string) error {
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
	a.base, a.last = base, last
	for i := range base.Contexts {
		c := &base.Contexts[i]
		record := last.context(c.key())
		if record == nil {
			continue
		}
		t := &trackedContext{handles: c.Handles, comm: c.Comm, original: *c.Original, expected: *record.Confirmed}
		if *record.Intended != t.expected {
			t.unconfirmed = record.Intended
		}
		a.tracked[c.key()] = t
	}
	return nil
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
	if a.base != nil && a.last == nil {
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

// contextMove is one context to be written; at is its place among the granted.
type contextMove struct {
	at       int
	t        *trackedContext
	wish     Wish
	from, to busypoll.Params
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
	t.yielded, t.expected, t.unconfirmed = nil, present, nil
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

// own locks the processes of moves, settles what earlier runs left there, and
// makes the originals durable. What cannot be owned is refused in granted.
func (a *Applications) own(ctx context.Context, granted []Granted, moves []contextMove) error {
	if a.base == nil && !a.owns {
		return errors.New("the originals were put back; start anew to tune again")
	}
	taken := map[busypoll.Handle]*lock{}
	var fresh []int
	anew := false
	refuse := func(i int, err error) error {
		var locked *LockedError
		var unsettled *unsettledError
		if !errors.As(err, &locked) && !errors.As(err, &unsettled) && !errors.Is(err, busypoll.ErrVanished) {
			return err
		}
		granted[moves[i].at].Err = err
		a.refuse(moves[i].t)
		return nil
	}
	for i, m := range moves {
		if a.recorded(m.t) {
			continue
		}
		restored, err := a.lockProcesses(ctx, m.t, taken)
		anew = anew || restored
		if err != nil {
			if err := refuse(i, err); err != nil {
				return err
			}
			continue
		}
		fresh = append(fresh, i)
	}
	for _, i := range fresh {
		if !anew || a.recordOf(moves[i].t.handles[0].Key()) != nil {
			continue
		}
		if err := a.startAnew(&moves[i], &granted[moves[i].at]); err != nil {
			if err := refuse(i, err); err != nil {
				return err
			}
		}
	}
	if len(fresh) == 0 {
		return nil
	}
	if err := a.saveOriginals(moves, granted); err != nil {
		return err
	}
	for _, process := range slices.SortedFunc(maps.Keys(taken), busypoll.Handle.Compare) {
		a.files.at("claim a process")
		if err := taken[process].claim(Owner{PID: os.Getpid(), StateDir: a.files.dir, BootID: a.bootID, Process: &process}); err != nil {
			return err
		}
	}
	return nil
}

// startAnew takes what another run put back for the original.
func (a *Applications) startAnew(m *contextMove, g *Granted) error {
	present, err := a.system.Processes().Get(m.t.handles[0])
	if err != nil {
		return err
	}
	m.t.original, m.t.expected = present, present
	m.from, m.to = present, m.wish.To(present)
	g.From, g.Now = &present, &present
	return nil
}

// refuse forgets a context that cannot be owned; one that was written before
// stays as it is recorded.
func (a *Applications) refuse(t *trackedContext) {
	key := t.handles[0].Key()
	if record := a.recordOf(key); record != nil {
		t.handles = record.Handles
		return
	}
	delete(a.tracked, key)
}

// recorded reports whether the baseline names the context by all its handles.
func (a *Applications) recorded(t *trackedContext) bool {
	c := a.recordOf(t.handles[0].Key())
	return c != nil && *c.Original == t.original &&
		!slices.ContainsFunc(t.handles, func(h busypoll.Handle) bool { return !slices.Contains(c.Handles, h) })
}

// unsettledError is a process that a crashed run has set and that could not be
// put back.
type unsettledError struct{ err error }

func (e *unsettledError) Error() string { return e.err.Error() }
func (e *unsettledError) Unwrap() error { return e.err }

// lockProcesses takes the locks of all processes that hold a context. It
// reports whether that put something back.
func (a *Applications) lockProcesses(ctx context.Context, t *trackedContext, taken map[busypoll.Handle]*lock) (restored bool, err error) {
	for _, h := range t.handles {
		process := busypoll.Handle{PID: h.PID, Start: h.Start}
		if a.held.held[a.held.processPath(process)] != nil {
			continue
		}
		l, err := a.held.process(process)
		if err != nil {
			return restored, err
		}
		settled, err := a.settleProcess(ctx, process, l)
		if err != nil {
			return restored, errors.Join(err, a.held.drop(l.path, l))
		}
		restored = restored || settled
		taken[process] = l
	}
	return restored, nil
}

// settleProcess restores the state of another run that has set this process and
// not put it back, lest its values be taken for originals.
func (a *Applications) settleProcess(ctx context.Context, process busypoll.Handle, l *lock) (restored bool, err error) {
	owner, err := l.leftover()
	if err != nil {
		return false, err
	}
	if owner == nil || owner.StateDir == a.files.dir || owner.BootID != a.bootID {
		return false, nil
	}
	if _, err := os.Stat(filepath.Join(owner.StateDir, baselineFile)); err != nil {
		return false, &unsettledError{fmt.Errorf("process %d was set by process %d, and what it was set to before was in %s, which is gone: %w; "+
			"if the present values are right (`autotune busypoll list`), delete %s and try again", process.PID, owner.PID, owner.StateDir, err, l.path)}
	}
	before := map[string]bool{}
	for path := range a.held.held {
		before[path] = true
	}
	report, err := restoreState(ctx, a.system, owner.StateDir, a.held, a.files.step)
	err = errors.Join(err, a.held.keepOnly(before))
	if err != nil || !report.allSettled() {
		return false, &unsettledError{fmt.Errorf("process %d was set by another run, which could not be put back: %w\n%s"+
			"run `autotune restore --state %s`", process.PID, errors.Join(err, errUnsettled), report, owner.StateDir)}
	}
	a.recovered = append(a.recovered, report)
	return true, nil
}

// Recovered returns what was put back since the last call of what other runs
// had left in processes that were to be set.
func (a *Applications) Recovered() []Report {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := a.recovered
	a.recovered = nil
	return out
}

var errUnsettled = errors.New("not settled")

// saveOriginals makes the originals of the moves durable that are not refused.
// Records of contexts that nobody holds any more, and of which nothing is
// known, are dropped.
func (a *Applications) saveOriginals(moves []contextMove, granted []Granted) error {
	next := &baseline{Version: stateVersion, BootID: a.bootID}
	if a.base != nil {
		*next = *a.base
		next.Contexts = nil
		for i := range a.base.Contexts {
			if c := a.base.Contexts[i]; a.tracked[c.key()] != nil {
				next.Contexts = append(next.Contexts, c)
			}
		}
	}
	for _, m := range moves {
		if granted[m.at].Err != nil {
			continue
		}
		key := m.t.handles[0].Key()
		original := m.t.original
		record := baselineContext{Handles: slices.Clone(m.t.handles), Comm: m.t.comm, Original: &original}
		at := slices.IndexFunc(next.Contexts, func(c baselineContext) bool { return c.key() == key })
		if at < 0 {
			next.Contexts = append(next.Contexts, record)
		} else {
			next.Contexts[at] = record
		}
	}
	// The intent must never name a context that the baseline does not.
	if a.last != nil {
		kept := *a.last
		kept.Contexts = slices.DeleteFunc(slices.Clone(a.last.Contexts), func(c intentContext) bool {
			i := slices.IndexFunc(next.Contexts, func(b baselineContext) bool { return b.key() == c.Key })
			return i < 0 || *a.recordOf(c.Key).Original != *next.Contexts[i].Original
		})
		if len(kept.Contexts) != len(a.last.Contexts) {
			if err := a.files.save(intentFile, &kept); err != nil {
				return err
			}
			a.last = &kept
		}
	}
	if err := a.files.save(baselineFile, next); err != nil {
		return err
	}
	a.base = next
	return nil
}

func (a *Applications) recordOf(key busypoll.Handle) *baselineContext {
	if a.base == nil {
		return nil
	}
	for i := range a.base.Contexts {
		if a.base.Contexts[i].key() == key {
			return &a.base.Contexts[i]
		}
	}
	return nil
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
