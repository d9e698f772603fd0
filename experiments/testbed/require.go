//go:build linux

package testbed

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mdlayher/genetlink"
	"golang.org/x/sys/unix"
)

// Require lets a live test go on where it can run, skips it where it cannot,
// and fails it where it could run but something that should be there is not:
//
//   - a kernel before 6.13 or without BTF: skip;
//   - not root: skip, or fail where the environment has CI=true;
//   - root on such a kernel, but capabilities, the netdev family, veth or
//     namespaces are missing: fail.
func Require(tb testing.TB) {
	tb.Helper()
	if reason := incapable(); reason != "" {
		tb.Skipf("live test needs Linux 6.13 with BTF: %s", reason)
	}
	if os.Geteuid() != 0 {
		const reason = "live test needs root; run it with sudo or as root in CI"
		if os.Getenv("CI") == "true" {
			tb.Fatal(reason)
		}
		tb.Skip(reason)
	}
	if err := provide(); err != nil {
		tb.Fatalf("this kernel and user should be able to run live tests, but: %v", err)
	}
}

// Skip skips a live test that this machine cannot run although others can, and
// adds its name and the reason to the file that TEST_SKIPS names: go test says
// nothing of a skip, so that make test ends with these.
func Skip(tb testing.TB, reason string) {
	tb.Helper()
	if name := os.Getenv("TEST_SKIPS"); name != "" {
		file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
		if err == nil {
			_, err = fmt.Fprintf(file, "%s: %s\n", tb.Name(), strings.ReplaceAll(reason, "\n", " "))
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			tb.Fatalf("note a skip: %v", err)
		}
	}
	tb.Skip(reason)
}

// incapable says why no user could run a live test on this kernel, or nothing.
func incapable() string {
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return fmt.Sprintf("uname: %v", err)
	}
	release := unix.ByteSliceToString(uname.Release[:])
	if !atLeast(release, 6, 13) {
		return "this is Linux " + release
	}
	if _, err := os.Stat("/sys/kernel/btf/vmlinux"); err != nil {
		return fmt.Sprintf("the kernel shows no BTF: %v", err)
	}
	return ""
}

// atLeast reports whether a kernel release is of that version or later.
func atLeast(release string, major, minor int) bool {
	var gotMajor, gotMinor int
	if n, err := fmt.Sscanf(release, "%d.%d", &gotMajor, &gotMinor); n != 2 || err != nil {
		return false
	}
	return gotMajor > major || gotMajor == major && gotMinor >= minor
}

// provide tries the cheap things that every bed needs.
func provide() error {
	err := onThread(func() error { return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS) })
	if err != nil {
		return fmt.Errorf("make namespaces (is CAP_SYS_ADMIN missing?): %w", err)
	}
	conn, err := genetlink.Dial(nil)
	if err != nil {
		return fmt.Errorf("open generic netlink: %w", err)
	}
	_, err = conn.GetFamily("netdev")
	if err != nil {
		err = fmt.Errorf("find the netdev family of generic netlink: %w", err)
	}
	return errors.Join(err, conn.Close())
}
