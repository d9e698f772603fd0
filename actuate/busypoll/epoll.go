package busypoll

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollParams is struct epoll_params of include/uapi/linux/eventpoll.h
// (Linux 6.9).
type epollParams struct {
	usecs  uint32
	budget uint16
	prefer uint8
	_      uint8
}

func rawParams(p Params) epollParams {
	raw := epollParams{usecs: p.Usecs, budget: p.Budget}
	if p.Prefer {
		raw.prefer = 1
	}
	return raw
}

func (e epollParams) params() Params {
	return Params{Usecs: e.usecs, Budget: e.budget, Prefer: e.prefer != 0}
}

func epollIoctl(fd int, request uintptr, params *epollParams) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(params)))
	if errno != 0 {
		return errno
	}
	return nil
}

// TryEpoll sets parameters on an epoll context of the caller's own and reads
// them back: what the kernel can do, whatever may be reached.
func TryEpoll() (err error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	want := rawParams(Params{Usecs: 50, Budget: 16, Prefer: true})
	if err := epollIoctl(fd, unix.EPIOCSPARAMS, &want); err != nil {
		return fmt.Errorf("%s: %w", opSetParams, err)
	}
	var got epollParams
	if err := epollIoctl(fd, unix.EPIOCGPARAMS, &got); err != nil {
		return fmt.Errorf("%s: %w", opGetParams, err)
	}
	if got != want {
		return fmt.Errorf("%s returns %v after %v was set", opGetParams, got.params(), want.params())
	}
	return nil
}
