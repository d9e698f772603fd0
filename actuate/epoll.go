package actuate

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollParams is struct epoll_params of include/uapi/linux/eventpoll.h
// (Linux 6.9).
type epollParams struct {
	BusyPollUsecs  uint32
	BusyPollBudget uint16
	PreferBusyPoll uint8
	_              uint8
}

func epollIoctl(fd int, request uintptr, params *epollParams) error {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(unsafe.Pointer(params)))
	if errno != 0 {
		return errno
	}
	return nil
}

// tryEpollParams sets busy-poll parameters on an epoll context of its own and
// reads them back.
func tryEpollParams() (err error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	want := epollParams{BusyPollUsecs: 50, BusyPollBudget: 16, PreferBusyPoll: 1}
	if err := epollIoctl(fd, unix.EPIOCSPARAMS, &want); err != nil {
		return fmt.Errorf("ioctl EPIOCSPARAMS: %w", err)
	}
	var got epollParams
	if err := epollIoctl(fd, unix.EPIOCGPARAMS, &got); err != nil {
		return fmt.Errorf("ioctl EPIOCGPARAMS: %w", err)
	}
	if got != want {
		return fmt.Errorf("ioctl EPIOCGPARAMS returns %+v after EPIOCSPARAMS %+v", got, want)
	}
	return nil
}
