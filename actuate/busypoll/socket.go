package busypoll

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The kernel tells no socket's budget (sk_getsockopt in net/core/sock.c has no
// SO_BUSY_POLL_BUDGET), so an original could not be put back: sockets are read
// and left with a budget of zero, which stands for "not touched".

func (l Live) readSocket(h Handle, fd int) (Params, error) {
	usecs, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL)
	if err != nil {
		return Params{}, l.explain(h, opGetsockopt, err)
	}
	prefer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL)
	if err != nil {
		return Params{}, l.explain(h, opGetsockopt, err)
	}
	return Params{Usecs: uint32(usecs), Prefer: prefer != 0}, nil
}

// errSocketBudget says why the budget of a socket is not set.
var errSocketBudget = errors.New("the kernel does not tell the budget of a socket, so it could not be put back: set it on the epoll context")

func (l Live) writeSocket(h Handle, fd int, from, to Params) error {
	if to.Budget != from.Budget {
		return &Error{Handle: h, Op: opSetsockopt, Reason: ReasonOther, Err: errSocketBudget}
	}
	if to.Prefer != from.Prefer {
		prefer := 0
		if to.Prefer {
			prefer = 1
		}
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL, prefer); err != nil {
			return l.explain(h, opSetsockopt, err)
		}
	}
	if to.Usecs != from.Usecs {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL, int(to.Usecs)); err != nil {
			return l.explain(h, opSetsockopt, err)
		}
	}
	return nil
}
