//go:build linux

package testbed

import (
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// onThread runs fn on a thread of its own that is destroyed afterwards, so
// that nothing else ever runs with what fn changed about it (namespaces,
// credentials). The runtime cannot destroy the process's first thread, which
// would keep the changes and hold the namespace for ever; fn never runs there.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == unix.Getpid() {
			defer runtime.UnlockOSThread()
			done <- onThread(fn)
			return
		}
		// Ending a goroutine that is still locked ends its thread.
		done <- fn()
	}()
	return <-done
}

// onThreadIn is [onThread] with the thread moved to a network namespace first.
func onThreadIn(netns *os.File, fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(netns.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace %s: %w", netns.Name(), err)
		}
		return fn()
	})
}
