package sim

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"autotune/model"
)

// ErrUnknownCase is wrapped by [CaseByName] for a name it does not know.
var ErrUnknownCase = errors.New("unknown setting")

// Case is a complete setting of the host: the kernel's knobs of each NAPI
// instance and how the application waits.
type Case struct {
	Name string
	NAPI model.Settings
	Wait Wait
}

// Wait is how the application waits for events: the busy-poll parameters of
// its epoll contexts, and the arguments of its calls.
type Wait struct {
	// BusyPoll is how long epoll_wait busy polls (busy_poll_usecs); zero with
	// Prefer polls once.
	BusyPoll time.Duration
	// Budget is the packets per busy poll; zero is the kernel's default of 8.
	Budget int
	// Prefer is prefer_busy_poll.
	Prefer bool
	// Timeout is epoll_wait's; zero waits for ever.
	Timeout time.Duration
	// MaxEvents is epoll_wait's; zero is 4096.
	MaxEvents int
}

// Cases returns the twelve cases of the published runs, in their order.
func Cases() []Case {
	published := model.PublishedCases()
	out := make([]Case, len(published))
	for i, c := range published {
		poll := c.Settings.BusyPoll
		out[i] = Case{
			Name: c.Name, NAPI: c.Settings,
			Wait: Wait{BusyPoll: poll.Span, Budget: int(poll.Budget), Prefer: poll.Prefer},
		}
		out[i].NAPI.BusyPoll = model.BusyPoll{}
		if c.Name == "fullbusy" {
			// The application asks again, and so keeps polling.
			out[i].Wait.Timeout = time.Millisecond
		}
	}
	return out
}

// CaseByName returns the published case of that name, or an error that wraps
// [ErrUnknownCase] and lists the names.
func CaseByName(name string) (Case, error) {
	var names []string
	for _, c := range Cases() {
		if c.Name == name {
			return c, nil
		}
		names = append(names, c.Name)
	}
	return Case{}, fmt.Errorf("%w %q; possible are %s", ErrUnknownCase, name, strings.Join(names, ", "))
}

func (w Wait) withDefaults() Wait {
	if w.Budget == 0 {
		w.Budget = 8
	}
	if w.MaxEvents == 0 {
		w.MaxEvents = 4096
	}
	return w
}
