package actuate

import (
	"fmt"
	"os"
	"sync"
)

// ledger is what a run knows of the originals and of what it wrote, in memory
// and on disk, and the locks that make it the only one to write. A [Host] and
// its [Applications] share one.
type ledger struct {
	mu     sync.Mutex
	system System
	bootID string
	files  store
	held   *locks
	// base is nil before there are originals and after they were put back;
	// last is nil before the first write, and placed before the first move.
	base   *baseline
	last   *intent
	placed *placed
}

// takeState makes the state directory where it is missing and locks it.
func (l *ledger) takeState(system System, stateDir, runDir string) (*lock, error) {
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, fmt.Errorf("make the state directory: %w", err)
	}
	dir, err := stateDirectory(stateDir)
	if err != nil {
		return nil, err
	}
	l.system, l.files.dir = system, dir
	l.held = newLocks(runDir)
	if l.bootID, err = system.BootID(); err != nil {
		return nil, err
	}
	return l.held.state(dir)
}

// untouched reports whether there are originals, but nothing was ever written.
func (l *ledger) untouched() bool { return l.base != nil && l.last == nil && l.placed == nil }
