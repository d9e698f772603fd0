package readiness

import (
	"time"

	"autotune/model"
)

// Facts are what was seen of one process and of the selected interfaces.
type Facts struct {
	App App
	// NAPIs are all instances of the interfaces, in the order of their queues,
	// whether or not the process has sockets on them.
	NAPIs []NAPI
	// CPUs are the host's CPUs by number; nil where not known.
	CPUs map[int]CPU
}

// App is one process.
type App struct {
	PID  int
	Comm string
	// Contexts are its epoll contexts; nil where they could not be listed.
	Contexts []model.EpollContext
	// Idle tells that it was watched and received nothing on the interfaces;
	// contexts are only listed of processes that do.
	Idle bool
	// Threads are those of the process; nil where they could not be read.
	Threads []Thread
	// Batch is the mean CPU time that it takes between two returns of
	// epoll_wait with events, all threads together; nil where not observed.
	Batch *time.Duration
	// CPUs is how many CPUs it used on average; nil where not observed.
	CPUs *float64
}

// Thread is one thread of the process.
type Thread struct {
	TID int
	// CPUs are those that it may run on, ascending.
	CPUs []int
	// Waits are the descriptors of the epoll contexts that it was seen waiting
	// for, ascending: empty where it was seen in none, or always running.
	Waits []int
}

// NAPI is one instance.
type NAPI struct {
	ID       uint32
	Queue    model.Queue
	Ifname   string
	Settings model.Settings
	// CPUs are those that poll it: where its kernel thread may run, or where
	// its interrupt is delivered. Nil where that is not known.
	CPUs []int
	// Suspension is what was seen of it over some windows; nil where not
	// observed.
	Suspension *model.Suspension
	// Polled are its packets over those of these windows in which it was
	// suspended; nil where it was in none.
	Polled *Polled
	// ThreadCPUs is how many CPUs its kernel thread used on average; nil where
	// there is none, or where not observed.
	ThreadCPUs *float64
}

// Polled counts packets of an instance.
type Polled struct {
	// Packets are all, and Application those that came by the application's
	// own polls.
	Packets, Application uint64
}

// CPU is what matters of one CPU.
type CPU struct {
	// Node is its NUMA node.
	Node int
	// ExitLatency is the time to leave the deepest idle state that it may
	// enter; nil without cpuidle.
	ExitLatency *time.Duration
	// IdleState is the name of that state.
	IdleState string
}

// CPUsOf takes nodes and idle states together. The nodes are by CPU; one that
// is missing is taken for the first.
func CPUsOf(conditions model.Conditions, nodes map[int]int) map[int]CPU {
	if len(conditions.CPUs) == 0 {
		return nil
	}
	out := make(map[int]CPU, len(conditions.CPUs))
	for i := range conditions.CPUs {
		c := &conditions.CPUs[i]
		cpu := CPU{Node: nodes[c.CPU]}
		for _, s := range c.IdleStates {
			allowed := !s.Disabled &&
				(c.ResumeLatency == nil || s.Latency <= *c.ResumeLatency) &&
				(conditions.CPUDMALatency == nil || s.Latency <= *conditions.CPUDMALatency)
			if allowed && (cpu.ExitLatency == nil || s.Latency >= *cpu.ExitLatency) {
				latency := s.Latency
				cpu.ExitLatency, cpu.IdleState = &latency, s.Name
			}
		}
		out[c.CPU] = cpu
	}
	return out
}
