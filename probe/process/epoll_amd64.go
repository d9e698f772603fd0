package process

import "golang.org/x/sys/unix"

func epollWaits() []int {
	return []int{unix.SYS_EPOLL_WAIT, unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2}
}
