package probe

import (
	"errors"
	"io/fs"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// ErrNoPolls means that polls cannot be observed on this host, so that there is
// nothing to decide upon. [Check] tells more.
var ErrNoPolls = errors.New("NAPI polls cannot be observed")

// gone reports whether an error from /proc means that the task has exited.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

// kernelError is an error of the BPF library without its guess at the cause:
// for every EPERM it blames the memlock limit, whatever was missing.
type kernelError struct{ err error }

// honest wraps err so that its text holds only what the kernel said.
func honest(err error) error {
	if err == nil || !strings.Contains(err.Error(), memlockHint) {
		return err
	}
	return &kernelError{err}
}

const memlockHint = " (MEMLOCK may be too low, consider rlimit.RemoveMemlock)"

func (e *kernelError) Error() string { return strings.ReplaceAll(e.err.Error(), memlockHint, "") }

func (e *kernelError) Unwrap() error { return e.err }

// errno returns the errno behind err, 0 when there is none.
func errno(err error) syscall.Errno {
	var e syscall.Errno
	errors.As(err, &e)
	return e
}
