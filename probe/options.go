package probe

import (
	"context"
	"errors"
	"fmt"
	"time"

	"autotune/model"
)

// Inventory tells which NAPI instance is now behind each queue of the run, with
// its settings read back. A queue that has none, or that could not be read, is
// reported as a [model.QueueError] joined into the error, beside the others.
type Inventory interface {
	NAPIs(context.Context) ([]model.NAPI, error)
}

// Options configure a [Source].
type Options struct {
	// Interval is the nominal length of a window. Zero means one second; less
	// than 10 ms is refused.
	Interval time.Duration
	// Inventory is asked once per window. It is required.
	Inventory Inventory
	// Clocks tells which hardware clocks stamp packets; nil uses no time stamps.
	// They are only read: whoever wants stamps switches them on.
	Clocks ReceiveClocks
	// SampleEvery follows one socket in so many, rounded up to a power of
	// two; at most 65536. Zero and one follow every socket. Fewer are followed
	// while the probes cost more than Budget.
	SampleEvery uint32
	// Budget is the share of a CPU that the probes may take, of the one where
	// they take most: above it less is sampled, down to one socket in 16 of
	// SampleEvery and one poll in 4, while all counts stay exact.
	// Zero means 0.01; negative means no limit, and that the cost is not
	// measured. At most 1.
	Budget float64
	// Contexts lists the epoll contexts of the processes that receive on the
	// queues, at most every ten seconds and whenever such a process appears.
	Contexts bool
	// EpollEvents counts the events that epoll_wait returns. It slows every
	// system call of the host a little, since the kernel has only a common
	// exit path to trace.
	EpollEvents bool
	// NoCounters leaves the performance counters of the hardware alone, so that
	// other profilers have all of them; cycles and instructions are then not
	// known.
	NoCounters bool
	// Events takes single events; nil takes none, and loads programs that
	// could not tell of any.
	Events *EventOptions
	// Procfs is where proc is mounted. Empty means /proc.
	Procfs string
}

func (o Options) withDefaults() (Options, error) {
	if o.Inventory == nil {
		return o, errors.New("open probes: no inventory of NAPI instances was given")
	}
	if o.Interval == 0 {
		o.Interval = time.Second
	}
	if o.Interval < minInterval {
		return o, fmt.Errorf("open probes: interval %v is below %v", o.Interval, minInterval)
	}
	if o.SampleEvery > maxSampleEvery {
		return o, fmt.Errorf("open probes: one socket in %d is less than one in %d", o.SampleEvery, maxSampleEvery)
	}
	switch {
	case o.Budget == 0:
		o.Budget = defaultBudget
	case !(o.Budget <= 1):
		return o, fmt.Errorf("open probes: a budget of %v CPUs is more than one", o.Budget)
	}
	if o.Events != nil {
		events, err := o.Events.withDefaults()
		if err != nil {
			return o, fmt.Errorf("open probes: %w", err)
		}
		o.Events = &events
	}
	if o.Procfs == "" {
		o.Procfs = "/proc"
	}
	return o, nil
}
