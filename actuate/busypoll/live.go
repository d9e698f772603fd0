package busypoll

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Live is this machine's processes.
type Live struct {
	// Lister lists them; nil lists nothing. One that is a [BudgetReader] as
	// well lets budgets of sockets be set.
	Lister Lister
	// Procfs is where proc is mounted; empty means /proc.
	Procfs string
}

func (l Live) procfs() string {
	if l.Procfs == "" {
		return "/proc"
	}
	return l.Procfs
}

// List implements [System].
func (l Live) List(ctx context.Context, pids []int, sockets bool) ([]Descriptor, error) {
	if l.Lister == nil {
		return nil, nil
	}
	return l.Lister.List(ctx, pids, sockets)
}

// Get implements [System].
func (l Live) Get(h Handle) (p Params, err error) {
	err = l.with(h, func(fd int) error {
		p, err = l.read(h, fd)
		return err
	})
	return p, err
}

// Swap implements [System].
func (l Live) Swap(h Handle, from, to Params) (now Params, err error) {
	err = l.with(h, func(fd int) error {
		if now, err = l.read(h, fd); err != nil || now != from || now == to {
			return err
		}
		writeErr := l.write(h, fd, from, to)
		now, err = l.read(h, fd)
		return errors.Join(writeErr, err)
	})
	return now, err
}

// with calls fn with a duplicate of the descriptor, after making sure that it
// is the one that was meant.
func (l Live) with(h Handle, fn func(fd int) error) (err error) {
	pidfd, err := unix.PidfdOpen(h.PID, 0)
	if err != nil {
		return l.explain(h, opPidfdOpen, err)
	}
	defer func() { err = errors.Join(err, unix.Close(pidfd)) }()
	// The pidfd holds on to the process, so a start time that is read while
	// the process is there is that process's.
	if h.Start != 0 {
		start, err := startTime(l.procfs(), h.PID)
		if err != nil {
			return err
		}
		if start != h.Start {
			return fmt.Errorf("%v: another process has its ID now: %w", h, ErrVanished)
		}
	}
	if err := l.check(h, strconv.Itoa(h.PID), h.FD); err != nil {
		return err
	}
	fd, err := unix.PidfdGetfd(pidfd, h.FD, 0)
	if err != nil {
		return l.explain(h, opPidfdGetfd, err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	// The number may have been reused since it was looked at.
	if err := l.check(h, "self", fd); err != nil {
		return err
	}
	return fn(fd)
}

// check makes sure that a descriptor leads to what the handle says. The address
// of an epoll context is not to be had here: callers list again.
func (l Live) check(h Handle, process string, fd int) error {
	target, err := os.Readlink(filepath.Join(l.procfs(), process, "fd", strconv.Itoa(fd)))
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ESRCH):
		return fmt.Errorf("%v: %w", h, ErrVanished)
	case errors.Is(err, os.ErrPermission):
		// It takes the same access as pidfd_getfd.
		return l.explain(h, opPidfdGetfd, unix.EPERM)
	case err != nil:
		return fmt.Errorf("%v: %w", h, err)
	}
	want := "anon_inode:[eventpoll]"
	if h.Kind == KindSocket {
		want = fmt.Sprintf("socket:[%d]", h.Object)
	}
	if target != want {
		return fmt.Errorf("%v is %s now, and not %s: %w", h, target, want, ErrVanished)
	}
	return nil
}

func (l Live) read(h Handle, fd int) (Params, error) {
	if h.Kind == KindSocket {
		return l.readSocket(h, fd)
	}
	var raw epollParams
	if err := epollIoctl(fd, unix.EPIOCGPARAMS, &raw); err != nil {
		return Params{}, l.explain(h, opGetParams, err)
	}
	return raw.params(), nil
}

func (l Live) write(h Handle, fd int, from, to Params) error {
	if h.Kind == KindSocket {
		return l.writeSocket(h, fd, from, to)
	}
	raw := rawParams(to)
	if err := epollIoctl(fd, unix.EPIOCSPARAMS, &raw); err != nil {
		return l.explain(h, opSetParams, err)
	}
	return nil
}

func (l Live) explain(h Handle, op string, err error) error {
	return explain(h, op, err, func() facts {
		return readFacts(os.DirFS(l.procfs()), h.PID, func(name string) (string, error) {
			return os.Readlink(filepath.Join(l.procfs(), name))
		})
	})
}
