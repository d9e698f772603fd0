package placement

import "autotune/model"

// Facts are where packets are polled and read, at one moment.
type Facts struct {
	Queues []Queue
	// Workers are the threads that wait for sockets of the queues.
	Workers []Worker
	// Nodes are the NUMA nodes by CPU; one that is missing is of the first.
	Nodes map[int]int
	// Balancer is the process ID of a running irqbalance, 0 for none.
	Balancer int
}

// Queue is one receive queue with what polls it.
type Queue struct {
	Queue  model.Queue
	Ifname string
	NAPIID uint32
	// Thread is the NAPI's kernel thread; nil where it runs in softirq.
	Thread *Thread
	// IRQ is nil where the driver reports none.
	IRQ *IRQ
	// RPS is the list of CPUs that packets are steered to after the poll,
	// empty where steering is off; nil where it could not be read.
	RPS *string
	// Before are the CPUs that the queue's earlier NAPI thread was on, where
	// the present one was made since and nobody has placed it yet; nil
	// otherwise.
	Before []int
}

// Thread is a thread and where it may run.
type Thread struct {
	TID     int
	Started uint64
	CPUs    []int
}

// IRQ is an interrupt, where it may be delivered and where it is. Effective is
// nil where the kernel does not tell.
type IRQ struct {
	Number    uint32
	Affinity  []int
	Effective []int
}

// Worker is a thread of an application.
type Worker struct {
	Thread
	PID  int
	Comm string
	// NAPIIDs are the instances of the sockets that it waits for.
	NAPIIDs []uint32
	// Fixed threads are judged but not moved: they are of a process that was
	// not selected.
	Fixed bool
}

// polledOn returns the CPUs that poll the queue; nil where not known.
func (q *Queue) polledOn() []int {
	switch {
	case q.Thread != nil:
		return q.Thread.CPUs
	case q.IRQ != nil && len(q.IRQ.Effective) > 0:
		return q.IRQ.Effective
	case q.IRQ != nil:
		return q.IRQ.Affinity
	default:
		return nil
	}
}
