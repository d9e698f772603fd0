package actuate

import (
	"context"
	"errors"

	"autotune/model"
)

// Crashable is a Host that tests can kill at any step: Open and Restore run
// with step called before each change to the state directory.
type Crashable struct {
	Host Host
	held *locks
}

func NewCrashable(step func(string)) *Crashable {
	c := &Crashable{}
	c.Host.files.step = step
	return c
}

func (c *Crashable) Open(ctx context.Context, system System, o Options) error {
	return c.Host.open(ctx, system, o)
}

func (c *Crashable) RestoreOn(ctx context.Context, system System, stateDir, runDir string) (Report, error) {
	c.held = newLocks(runDir)
	report, err := restoreState(ctx, system, stateDir, c.held, c.Host.files.step)
	if releaseErr := c.held.release(); err == nil {
		err = releaseErr
	}
	return report, err
}

// Crash does what the kernel does for a killed process: it closes the files,
// and nothing else.
func (c *Crashable) Crash() {
	c.Host.held.crash()
	c.held.crash()
}

func (l *locks) crash() {
	if l == nil {
		return
	}
	for _, held := range l.held {
		_ = held.f.Close()
		if held.socket != nil {
			_ = held.socket.Close()
		}
	}
	l.held = nil
}

// LoadState reads a state directory as a restore would.
func LoadState(dir string) (found bool, err error) {
	_, _, err = store{dir: dir}.load()
	if errors.Is(err, errNoState) {
		return false, nil
	}
	return err == nil, err
}

// Recorded reports whether the queue is in the intent of a state directory.
func Recorded(dir string, q model.Queue) bool {
	_, last, err := store{dir: dir}.load()
	return err == nil && last.queue(q) != nil
}

// OnThread runs fn on a thread that ends with it.
func OnThread(fn func() error) error { return onThread(fn) }

// CrashableApplications is an Applications that tests can kill at any step.
type CrashableApplications struct{ Apps *Applications }

func NewCrashableApplications(step func(string)) *CrashableApplications {
	a := &Applications{ledger: &ledger{}, owns: true}
	a.files.step = step
	return &CrashableApplications{a}
}

func (c *CrashableApplications) Open(system System, stateDir, runDir string) error {
	return c.Apps.open(context.Background(), system, stateDir, runDir)
}

// Crash is [Crashable.Crash].
func (c *CrashableApplications) Crash() {
	c.Apps.held.crash()
	c.Apps.held = nil
}
