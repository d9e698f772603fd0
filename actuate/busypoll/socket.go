package busypoll

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

func (l Live) readSocket(h Handle, fd int) (Params, error) {
	usecs, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL)
	if err != nil {
		return Params{}, l.explain(h, opGetsockopt, err)
	}
	prefer, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PREFER_BUSY_POLL)
	if err != nil {
		return Params{}, l.explain(h, opGetsockopt, err)
	}
	budget, err := l.socketBudget(fd)
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return Params{}, fmt.Errorf("%v: %w", h, err)
	}
	return Params{Usecs: uint32(usecs), Budget: budget, Prefer: prefer != 0}, nil
}

// socketBudget reads the budget of an own descriptor.
func (l Live) socketBudget(fd int) (uint16, error) {
	reader, ok := l.Lister.(BudgetReader)
	if !ok {
		return 0, errNoBudgetReader
	}
	return reader.SocketBudget(fd)
}

var errNoBudgetReader = fmt.Errorf("nothing here reads the busy-poll budget of sockets: %w", errors.ErrUnsupported)

// SocketBudgets implements [System], by a socket of the caller's own.
func (l Live) SocketBudgets() (err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("make a socket: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	if _, err := l.socketBudget(fd); err != nil {
		return err
	}
	const want = 5
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BUSY_POLL_BUDGET, want)
	if errors.Is(err, unix.EPERM) {
		// Whoever may not raise a budget can still be told of it.
		return nil
	}
	if err != nil {
		return fmt.Errorf("setsockopt SO_BUSY_POLL_BUDGET: %w", err)
	}
	got, err := l.socketBudget(fd)
	if err == nil && got != want {
		err = fmt.Errorf("the kernel shows a socket's busy-poll budget as %d after %d was set: %w", got, want, errors.ErrUnsupported)
	}
	return err
}

func (l Live) writeSocket(h Handle, fd int, from, to Params) error {
	set := func(option, value int) error {
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, value); err != nil {
			return l.explain(h, opSetsockopt, err)
		}
		return nil
	}
	if to.Budget != from.Budget {
		if _, err := l.socketBudget(fd); err != nil {
			return &Error{Handle: h, Op: "read the budget", Reason: ReasonNoBudget, Err: err, Remedy: noBudgetRemedy}
		}
		if err := set(unix.SO_BUSY_POLL_BUDGET, int(to.Budget)); err != nil {
			return err
		}
	}
	if to.Prefer != from.Prefer {
		prefer := 0
		if to.Prefer {
			prefer = 1
		}
		if err := set(unix.SO_PREFER_BUSY_POLL, prefer); err != nil {
			return err
		}
	}
	if to.Usecs != from.Usecs {
		return set(unix.SO_BUSY_POLL, int(to.Usecs))
	}
	return nil
}
