//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// aloneFile is locked by the test that runs alone.
const aloneFile = "/run/autotune-live-test.lock"

// Alone waits until no other test that called it runs, in this process or
// another, and keeps others waiting until the test has ended. Tests whose
// verdict depends on timing call it first: the go command runs the tests of
// several packages at once, and two loads that spin on one CPU measure each
// other.
func Alone(tb testing.TB) {
	tb.Helper()
	file, err := os.OpenFile(aloneFile, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		tb.Fatalf("open the lock of live tests: %v", err)
	}
	// The file stays: removing it would let a third test lock a new one while
	// the second still waits for this.
	tb.Cleanup(func() { _ = file.Close() })
	if err := lock(file); err != nil {
		tb.Fatal(err)
	}
}

func lock(file *os.File) error {
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		return nil
	}
}
