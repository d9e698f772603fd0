package busypoll

import (
	"errors"
	"fmt"
	"os"

	"autotune/model"

	"golang.org/x/sys/unix"
)

// ErrVanished says that a process has exited, or that its descriptor was closed
// or is another one now. There is nothing to set then, and nothing to put back.
var ErrVanished = fmt.Errorf("the process or its descriptor no longer exists: %w", model.ErrGone)

// Reason is why a descriptor of another process cannot be reached or set.
type Reason string

// The reasons.
const (
	// ReasonUser: the process is another user's, and CAP_SYS_PTRACE is
	// missing.
	ReasonUser Reason = "another user"
	// ReasonUserNamespace: the process is in a user namespace in which the
	// caller has no CAP_SYS_PTRACE.
	ReasonUserNamespace Reason = "another user namespace"
	// ReasonYama: the Yama security module forbids it (ptrace_scope).
	ReasonYama Reason = "ptrace_scope"
	// ReasonProtected: the process protects itself (PR_SET_DUMPABLE, or a
	// set-user-ID program), or a security module or seccomp filter forbids it.
	ReasonProtected Reason = "protected"
	// ReasonNoPidfd: the kernel has no pidfd_getfd (Linux 5.6).
	ReasonNoPidfd Reason = "no pidfd_getfd"
	// ReasonNoParams: the kernel's epoll contexts have no parameters (Linux
	// 6.9), or it was built without busy polling.
	ReasonNoParams Reason = "no epoll parameters"
	// ReasonNoBudget: what the budget of a socket is now cannot be read, so it
	// could not be put back.
	ReasonNoBudget Reason = "no budget of sockets"
	// ReasonNetAdmin: the value asks for CAP_NET_ADMIN.
	ReasonNetAdmin Reason = "CAP_NET_ADMIN"
	// ReasonOther: none of these.
	ReasonOther Reason = "other"
)

// Error is a descriptor that could not be reached or set.
type Error struct {
	Handle Handle
	// Op is the system call.
	Op     string
	Reason Reason
	// Remedy says in a sentence why, and what to do.
	Remedy string
	Err    error
}

func (e *Error) Error() string {
	s := fmt.Sprintf("%v: %s: %v", e.Handle, e.Op, e.Err)
	if e.Remedy != "" {
		s += ": " + e.Remedy
	}
	return s
}

// Unwrap returns the errno, and what it comes to: [os.ErrPermission] or
// [model.ErrReadOnly].
func (e *Error) Unwrap() []error {
	switch e.Reason {
	case ReasonNoPidfd, ReasonNoParams, ReasonNoBudget:
		return []error{e.Err, model.ErrReadOnly}
	case ReasonOther:
		return []error{e.Err}
	default:
		return []error{e.Err, os.ErrPermission}
	}
}

// explain turns a failed call into an error that says what to do. The facts are
// looked up only when the answer depends on them.
func explain(h Handle, op string, err error, facts func() facts) error {
	out := &Error{Handle: h, Op: op, Reason: ReasonOther, Err: err}
	switch op {
	case opPidfdOpen, opPidfdGetfd:
		switch {
		case errors.Is(err, unix.ESRCH), errors.Is(err, unix.EBADF):
			return fmt.Errorf("%v: %s: %w", h, op, ErrVanished)
		case errors.Is(err, unix.ENOSYS):
			out.Reason = ReasonNoPidfd
			out.Remedy = "this kernel cannot reach descriptors of other processes: boot Linux 5.6 or later (6.9 to set epoll contexts)"
		case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
			out.Reason, out.Remedy = facts().denied()
		}
	case opGetParams, opSetParams:
		switch {
		case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL) && op == opGetParams:
			out.Reason = ReasonNoParams
			out.Remedy = "epoll contexts have no busy-poll parameters on this kernel: boot Linux 6.9 or later"
		case errors.Is(err, unix.EOPNOTSUPP):
			out.Reason = ReasonNoParams
			out.Remedy = "this kernel was built without busy polling (CONFIG_NET_RX_BUSY_POLL)"
		case errors.Is(err, unix.EINVAL):
			out.Remedy = "a value is above what the kernel takes, or its epoll contexts have no busy-poll parameters yet (before Linux 6.9)"
		case errors.Is(err, unix.EPERM):
			out.Reason = ReasonNetAdmin
			out.Remedy = fmt.Sprintf("a budget above %d needs CAP_NET_ADMIN: run as root, or ask for less", MaxBudget)
		}
	case opSetsockopt, opGetsockopt:
		switch {
		case errors.Is(err, unix.EPERM):
			out.Reason = ReasonNetAdmin
			out.Remedy = "raising SO_BUSY_POLL, a larger SO_BUSY_POLL_BUDGET and SO_PREFER_BUSY_POLL need CAP_NET_ADMIN: run as root"
		case errors.Is(err, unix.ENOPROTOOPT):
			out.Reason = ReasonNoParams
			out.Remedy = "this kernel lacks the socket option: SO_PREFER_BUSY_POLL and SO_BUSY_POLL_BUDGET came with Linux 5.11"
		}
	}
	return out
}

// noBudgetRemedy goes with [ReasonNoBudget].
const noBudgetRemedy = "only a BPF iterator tells the budget of a socket, without which it could not be put back: " +
	"run as root on Linux 5.11 or later with BTF, or set the budget of the epoll context"

// The system calls, as errors name them.
const (
	opPidfdOpen  = "pidfd_open"
	opPidfdGetfd = "pidfd_getfd"
	opGetParams  = "ioctl EPIOCGPARAMS"
	opSetParams  = "ioctl EPIOCSPARAMS"
	opGetsockopt = "getsockopt"
	opSetsockopt = "setsockopt"
)
