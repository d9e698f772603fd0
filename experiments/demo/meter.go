package demo

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"autotune/experiments/workload"
)

// meter collects what the client reports and reads the CPU time that belongs
// to it. Its methods may be called from any goroutine.
type meter struct {
	serverPID int
	threads   []int
	serverCPU int

	mu        sync.Mutex
	intervals []workload.ClientInterval
	// costs are the CPU times of server and NAPI thread during the intervals;
	// nil where that is not known.
	costs []*time.Duration
	last  *arrival
	watch func(workload.ClientInterval, *time.Duration)
}

// arrival is the CPU time of server and NAPI thread when an interval came.
type arrival struct {
	at  time.Time
	cpu time.Duration
}

func newMeter(serverPID int, threads []int, serverCPU int) *meter {
	return &meter{serverPID: serverPID, threads: threads, serverCPU: serverCPU}
}

// reading is a state of the CPU clocks: of the server process, the NAPI's
// thread and this process, and all that the server's CPU did.
type reading struct{ server, napi, tuner, all time.Duration }

func (m *meter) read() (reading, error) {
	var r reading
	var err error
	if r.server, err = workload.CPUTime(m.serverPID); err != nil {
		return r, err
	}
	if r.napi, err = workload.CPUTime(m.threads...); err != nil {
		return r, err
	}
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return r, fmt.Errorf("read the CPU time of this process: %w", err)
	}
	r.tuner = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	r.all, err = taken(m.serverCPU)
	return r, err
}

// interval takes one of the client's intervals as it comes.
func (m *meter) interval(in workload.ClientInterval) {
	now, err := m.read()
	this := arrival{time.Now(), now.server + now.napi}
	m.mu.Lock()
	var cost *time.Duration
	// On a busy machine intervals come late, and not equally so: what was
	// spent between two arrivals is taken as a rate.
	if passed := this.at.Sub(m.lastAt()); err == nil && m.last != nil && passed > 0 && this.cpu >= m.last.cpu {
		rate := float64(this.cpu-m.last.cpu) / float64(passed)
		spent := time.Duration(rate * float64(in.End-in.Start))
		cost = &spent
	}
	m.last = nil
	if err == nil {
		m.last = &this
	}
	m.intervals, m.costs = append(m.intervals, in), append(m.costs, cost)
	watch := m.watch
	m.mu.Unlock()
	if watch != nil {
		watch(in, cost)
	}
}

// lastAt is when the last interval came whose CPU time is known.
func (m *meter) lastAt() time.Time {
	if m.last == nil {
		return time.Time{}
	}
	return m.last.at
}

// begin forgets what was collected, and has watch called with every interval
// from now on.
func (m *meter) begin(watch func(workload.ClientInterval, *time.Duration)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.intervals, m.costs, m.watch = nil, nil, watch
}

// collected returns the intervals since begin, and their costs.
func (m *meter) collected() ([]workload.ClientInterval, []*time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]workload.ClientInterval(nil), m.intervals...), append([]*time.Duration(nil), m.costs...)
}
