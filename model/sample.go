package model

import "time"

// Sample is what was seen of the host's receive path during one span of time.
// Whatever a source could not observe is nil, never zero.
type Sample struct {
	// At is the end of the span, since boot (CLOCK_BOOTTIME for live
	// sources); Span is its length.
	At, Span time.Duration
	// Queues are ordered by [Queue.Compare].
	Queues []QueueSample
	CPUs   []CPUSample
	// Apps are the processes that received on a tuned queue; nil when
	// applications were not observed.
	Apps []AppSample
	// AppsUnknown counts the processes that received on a tuned queue but are
	// not in Apps: how much CPU time they took in the span is not known. They
	// received for the first time and are older than the span, or ended in it
	// where ends are not observed.
	AppsUnknown uint64
	// Latency is the delay that the objective is judged by, over all queues;
	// nil when no delay was observed.
	Latency *Latency
	// Lost counts the events that the probes dropped. A window with loss
	// decides nothing.
	Lost uint64
	// Active holds what each queue was set to at the end of the span: read
	// back, never assumed. A queue that could not be read is missing here and
	// named in Absent.
	Active Config
	// NAPIIDs are the NAPI instances that Active was read from. A queue whose
	// instance is another one than in the sample before was made anew: the
	// kernel, and no other writer, chose what it is set to.
	NAPIIDs map[Queue]uint32
	// Absent tells why a queue of the run has no read-back.
	Absent map[Queue]string
	// Probe is how much the probes measured and what that cost; nil where the
	// source has no probes that could tell.
	Probe *ProbeSample
}

// ProbeSample is what the source spent on observing, and how it kept that
// within bounds.
type ProbeSample struct {
	// Cost is the CPU time per second that the probes' programs took on the
	// CPU where they took most, when it was last measured; nil when it never
	// was. The kernel's own account of it (BPF statistics) is part of it, so
	// the cost without one is less.
	Cost *time.Duration
	// Budget is what Cost may be per second before less is sampled.
	Budget time.Duration
	// PollEvery is the share of polls that were timed, as one in so many: ring
	// waits are those of these polls. Counts are never sampled.
	PollEvery uint32
}

// QueueSample is what one NAPI instance did during a sample's span.
type QueueSample struct {
	Queue  Queue
	NAPIID uint32
	// Softirq, Thread and Busy count the polls by who ran them: the NET_RX
	// softirq, the NAPI's own kernel thread, or an application busy polling.
	Softirq, Thread, Busy PollCounts
	// Work counts polls by the packets they processed; the last element takes
	// every poll of that many or more.
	Work [WorkBuckets]uint64
	// TimerSoftirq and TimerThread are the parts of Softirq and Thread that the
	// NAPI's hrtimer started; whatever else scheduled the NAPI started the
	// rest, which is the device's interrupt unless an application handed the
	// NAPI back. Nil when timers were not observed.
	TimerSoftirq, TimerThread *PollCounts
	// Netpoll counts the polls with budget 0, which only send (netconsole).
	// They are in no other count. Nil when not observed.
	Netpoll *uint64
	// Takeovers counts which loop took over from which; nil when timers were
	// not observed.
	Takeovers *Takeovers
	// Unmasked counts how often the defer count ran out, so that the device's
	// interrupt was enabled again. Nil when not observed.
	Unmasked *uint64
	// Interrupts counts the interrupts of the instance's line; nil where the
	// driver does not tell which one that is.
	Interrupts *uint64
	// SoftirqTime is the time of the softirq polls, projected from those that
	// were timed: all, unless the source samples polls or NAPIs that are not
	// followed were polled right before. Nil when not observed.
	SoftirqTime *time.Duration
	// Suspension is how the interrupt was suspended while an application was
	// busy; nil when timers were not observed.
	Suspension *Suspension
	// Timer counts what the NAPI's hrtimer did; nil when not observed.
	Timer *TimerCounts
	// ThreadTime is the CPU time of the NAPI thread; nil when there is none.
	ThreadTime *time.Duration
	// RingWait is how long packets waited between arriving and being polled, as
	// RingWaitSource says.
	RingWait *Histogram
	// Stamps counts the time stamps of the device on what became ready on
	// followed sockets; nil where the device gives none.
	Stamps *Stamps
	// SocketWait is from data being ready on a socket to the application
	// reading it.
	SocketWait *Histogram
	// Service is from the application's read to its next send on the socket.
	Service *Histogram
	// Delay is the sum of the three per request: the server-side delay.
	Delay *Histogram
	// SampleEvery is the share of sockets followed, as one in so many.
	SampleEvery uint32
	// CPUs are those that ran the polls, at least one in 16 of them each,
	// ascending. Nil when nothing was polled, or it was not observed.
	CPUs []int
}

// Polls returns the counts of all loops together.
func (q *QueueSample) Polls() PollCounts {
	return q.Softirq.Plus(q.Thread).Plus(q.Busy)
}

// WorkBuckets is the length of a work histogram: 0 to 64 packets, the default
// poll budget, have an element each.
const WorkBuckets = 66

// PollCounts counts the polls of one loop.
type PollCounts struct {
	Polls   uint64 `json:"polls"`
	Packets uint64 `json:"packets"`
	// Empty polls found no packet; Full ones used up their budget.
	Empty uint64 `json:"empty"`
	Full  uint64 `json:"full"`
}

// Plus returns the sum of both counts.
func (p PollCounts) Plus(o PollCounts) PollCounts {
	return PollCounts{
		Polls:   p.Polls + o.Polls,
		Packets: p.Packets + o.Packets,
		Empty:   p.Empty + o.Empty,
		Full:    p.Full + o.Full,
	}
}

// TimerCounts counts what a NAPI's hrtimer did: how often it was armed and how
// often it fired.
type TimerCounts struct {
	Arms  uint64 `json:"arms"`
	Fires uint64 `json:"fires"`
}

// Takeovers counts, by the loop that ran the poll before and the one that ran
// the next, the polls of another loop than the one before. Interrupt and Timer
// stand for the softirq or the NAPI thread, whichever runs the NAPI, by what
// started it; Application for busy polling.
type Takeovers struct {
	InterruptToTimer       uint64 `json:"interrupt_to_timer"`
	InterruptToApplication uint64 `json:"interrupt_to_application"`
	TimerToInterrupt       uint64 `json:"timer_to_interrupt"`
	TimerToApplication     uint64 `json:"timer_to_application"`
	ApplicationToInterrupt uint64 `json:"application_to_interrupt"`
	ApplicationToTimer     uint64 `json:"application_to_timer"`
}

// Suspension counts the periods in which irq_suspend_timeout kept the device's
// interrupt masked while an application took its events: from the first
// epoll_wait that returned events to what ended the period.
type Suspension struct {
	// Started counts the periods that began.
	Started uint64
	// Resumed ended as they should: epoll_wait found no event and gave the
	// NAPI back to the kernel.
	Resumed uint64
	// Expired ended with the safety timer: the application stalled.
	Expired uint64
	// Flushed ended with the small timer (gro_flush_timeout), which fired
	// between a busy poll and the return of its events.
	Flushed uint64
	// Length is the distribution of the lengths of those that ended.
	Length Histogram
}

// CPUSample is what one CPU did during a sample's span. Times with the suffix
// Idle are the parts that no task's CPU time includes: what interrupted the
// idle task or, where the kernel accounts interrupts apart
// (IRQ_TIME_ACCOUNTING), all but what ksoftirqd ran. So the CPU time of tasks
// and the Idle times add up without counting anything twice.
type CPUSample struct {
	CPU int
	// NetRX is the time spent in the NET_RX softirq, without the hard
	// interrupts that interrupted it. Nil when not observed.
	NetRX, NetRXIdle *time.Duration
	// HardIRQs counts the calls of device interrupt handlers, and HardIRQ is
	// their time: measured for one in ProbeSample.PollEvery and projected.
	// The kernel's own timer and inter-processor interrupts are not among
	// them. Nil when not observed.
	HardIRQs             *uint64
	HardIRQ, HardIRQIdle *time.Duration
	// Ksoftirqd is the CPU time of the CPU's softirq thread, which includes
	// the softirqs that it runs. Nil when not known.
	Ksoftirqd *time.Duration
	// TransmitOnly counts the polls of NAPI instances that have no ID, which
	// only complete what was sent. Nil when not observed.
	TransmitOnly *uint64
	// Busy is all non-idle time without Steal; Steal is time taken by the
	// hypervisor. Busy is sampled by the kernel's tick: beside its noise it
	// misses 10 to 20% of a load that other timers pace.
	Busy, Steal time.Duration
	// Squeezed counts the softirq runs that ended with work left.
	Squeezed uint64
	// Cycles and Instructions are those of all that the CPU ran, and the
	// cycles without those that it slept. Nil where there is no performance
	// monitoring unit, or it counted for others.
	Cycles, Instructions *uint64
}

// AppSample is what one process that received on a tuned queue did.
type AppSample struct {
	PID  int
	Comm string
	// CPU is the CPU time of all its threads.
	CPU time.Duration
	// Waits counts returns of epoll_wait by the number of events; the last
	// element takes every larger return. Nil when not observed.
	Waits *[WorkBuckets]uint64
	// Events is the number of events in all these returns, and Full counts the
	// returns with as many events as the application had room for (maxevents):
	// there may have been more. Nil when not observed.
	Events, Full *uint64
	// BusyPolls are the polls of followed NAPIs that the process ran itself.
	// Nil when not observed.
	BusyPolls *BusyPolls
	// Cgroup is the path of its control group: of the unified hierarchy,
	// unless the process is at its root and a legacy hierarchy tells more.
	// Empty when not known.
	Cgroup string
	// Selected tells that the run may set how its contexts busy poll.
	Selected bool
	// Contexts are its epoll contexts; nil when they were not listed.
	Contexts []EpollContext
}

// BusyPolls counts the busy polls of one process and the packets in them.
type BusyPolls struct {
	Polls   uint64 `json:"polls"`
	Packets uint64 `json:"packets"`
}

// EpollContext is one epoll instance of a process and what it says about busy
// polling.
type EpollContext struct {
	FD int
	// Opaque is set where the listing tells no more than FD (/proc, without
	// BPF iterators): all other fields are then not known.
	Opaque bool
	// BusyPoll is how long epoll_wait busy polls (busy_poll_usecs); Budget is
	// the packets per busy poll; Prefer is prefer_busy_poll.
	BusyPoll time.Duration
	Budget   uint16
	Prefer   bool
	// NAPIIDs are the NAPI instances of the sockets that the context watches,
	// ascending. More than one means that suspending one of them would stall
	// the others.
	NAPIIDs []uint32
	// MoreNAPIs tells that it may watch sockets of further instances: one of
	// its process is watched by more contexts than the listing could name.
	MoreNAPIs bool
}

// Mixed tells that the context watches sockets of several NAPI instances, or
// that this cannot be ruled out.
func (c *EpollContext) Mixed() bool { return len(c.NAPIIDs) > 1 || c.MoreNAPIs }

// Latency is an application-facing delay distribution and where it is from.
type Latency struct {
	Histogram Histogram
	// Source names the measurement, for example "server-side delay".
	Source string
}
