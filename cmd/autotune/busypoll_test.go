package main

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"autotune/model"
)

func TestAProcessThatMayNotBeLookedIntoIsNoneWithoutContexts(t *testing.T) {
	procfs, err := os.MkdirTemp("", "procfs")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(procfs) })
	dir := filepath.Join(procfs, "12")
	fd := filepath.Join(dir, "fd")
	stat := "12 (memcached) S 1 12 12 0 -1 4194304 0 0 0 0 0 0 0 0 20 0 1 0 100\n"
	if err := errors.Join(
		os.Chmod(procfs, 0o755), os.Mkdir(dir, 0o755), os.Mkdir(fd, 0o755),
		os.WriteFile(filepath.Join(dir, "comm"), []byte("memcached\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "stat"), []byte(stat), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	sel := model.Selector{Kind: model.SelectComm, Value: "memcached"}
	if err := lookable(procfs, sel); err != nil {
		t.Errorf("of a process that may be looked into: %v", err)
	}

	if err := os.Chmod(fd, 0); err != nil {
		t.Fatal(err)
	}
	if os.Geteuid() == 0 {
		// Root may look into all, unless this thread is somebody else to file
		// systems.
		const nobody = 65534
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		if _, err := unix.SetfsuidRetUid(nobody); err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = unix.SetfsuidRetUid(0) }()
	}
	var exit *exitError
	err = lookable(procfs, sel)
	if !errors.As(err, &exit) || exit.code != exitCannot || !errors.Is(err, os.ErrPermission) {
		t.Errorf("of one that may not: %v, want an error of exit code %d", err, exitCannot)
	}
}
