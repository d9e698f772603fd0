package sim

import (
	"errors"
	"fmt"
	"time"

	"autotune/model"
)

// ErrUnknownCase is wrapped by [CaseByName] for a name it does not know.
var ErrUnknownCase = errors.New("unknown case")

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
	const suspend = 20 * time.Millisecond
	prefer := Wait{Budget: 64, Prefer: true}
	deferral := func(name string, flush time.Duration) Case {
		return Case{Name: name, NAPI: model.Settings{DeferHardIRQs: 100, GROFlushTimeout: flush}}
	}
	suspension := func(name string, flush time.Duration) Case {
		return Case{
			Name: name, Wait: prefer,
			NAPI: model.Settings{DeferHardIRQs: 100, GROFlushTimeout: flush, IRQSuspendTimeout: suspend},
		}
	}
	napibusy := deferral("napibusy", 200*time.Microsecond)
	napibusy.Wait = Wait{BusyPoll: 64 * time.Microsecond, Budget: 64, Prefer: true}
	fullbusy := deferral("fullbusy", 5*time.Millisecond)
	fullbusy.Wait = Wait{BusyPoll: time.Millisecond, Budget: 64, Prefer: true, Timeout: time.Millisecond}
	suspend0 := suspension("suspend0", 0)
	suspend0.NAPI.DeferHardIRQs = 0
	return []Case{
		{Name: "base"},
		deferral("defer10", 10*time.Microsecond),
		deferral("defer20", 20*time.Microsecond),
		deferral("defer50", 50*time.Microsecond),
		deferral("defer200", 200*time.Microsecond),
		fullbusy,
		napibusy,
		suspend0,
		suspension("suspend10", 10*time.Microsecond),
		suspension("suspend20", 20*time.Microsecond),
		suspension("suspend50", 50*time.Microsecond),
		suspension("suspend200", 200*time.Microsecond),
	}
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
	return Case{}, fmt.Errorf("case %q (there are %v): %w", name, names, ErrUnknownCase)
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
