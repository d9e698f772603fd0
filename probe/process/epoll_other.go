//go:build !amd64

package process

import "golang.org/x/sys/unix"

// epollWaits are the numbers on the architectures that came after epoll_pwait.
func epollWaits() []int { return []int{unix.SYS_EPOLL_PWAIT, unix.SYS_EPOLL_PWAIT2} }
