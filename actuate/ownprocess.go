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
)

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
		if !anew || a.last.context(moves[i].t.handles[0].Key()) != nil {
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

// recorded reports whether the baseline names the context by all its handles,
// and their processes are locked. A state that was being settled by another run
// may name a process that is no longer its own.
func (a *Applications) recorded(t *trackedContext) bool {
	c := a.recordOf(t.handles[0].Key())
	return c != nil && *c.Original == t.original &&
		!slices.ContainsFunc(t.handles, func(h busypoll.Handle) bool {
			return !slices.Contains(c.Handles, h) || a.held.held[a.held.processPath(h)] == nil
		})
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
