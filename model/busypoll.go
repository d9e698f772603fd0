package model

import (
	"fmt"
	"time"
)

// BusyPoll is how the epoll contexts that watch a queue's sockets busy poll
// (EPIOCSPARAMS, Linux 6.9). The zero value leaves it to the application: what
// it chose for itself holds, or is put back.
type BusyPoll struct {
	// Span is for how long epoll_wait polls before it sleeps
	// (busy_poll_usecs); whole microseconds. With Prefer and zero it polls
	// once.
	Span time.Duration
	// Budget is the packets per poll (busy_poll_budget). Above 64 the kernel
	// asks for CAP_NET_ADMIN.
	Budget uint16
	// Prefer is prefer_busy_poll: without it irq_suspend_timeout has no effect.
	Prefer bool
}

// String returns the parameters in the notation of policy specs; it is empty
// for the zero value.
func (b BusyPoll) String() string {
	if b == (BusyPoll{}) {
		return ""
	}
	prefer := "off"
	if b.Prefer {
		prefer = "on"
	}
	return fmt.Sprintf("usecs=%v,budget=%d,prefer=%s", b.Span, b.Budget, prefer)
}
