// Package sim is a discrete-event simulator of one host's network receive
// path: NIC rings with interrupt moderation, NAPI with its deferral counter
// and hrtimer, the NET_RX softirq, busy polling and interrupt suspension from
// epoll_wait, and an application that serves requests.
//
// The central type is [Simulator]. It is a source of samples and an actuator
// of settings for the loop, so that a policy cannot tell it from a live host.
// Its life is New, then Next until io.EOF, with Apply at any time between two
// calls of Next; nothing needs closing. [Run] is the short way to a [Result],
// [Table] that to many, and [Fit] adapts a [Preset] to measurements.
//
// Time is simulated: the package reads no clock. One seed gives the same
// samples however many cores work on it, because each receive queue is
// simulated on its own, from its own stream of random numbers.
//
// # What is modelled
//
// A lane is a queue with its NAPI instance, core, application thread and
// connections. Its events are typed: packets on the wire are in a queue
// ordered by arrival, and each possible interrupt (receive and transmit
// moderation, hrtimer) is a time that is compared before any work advances
// the clock. Arrivals are taken off the wire only when something could see
// them, so that a burst costs no more than its packets, and empty busy polls
// are passed over in one step.
//
// What couples queues on a real host enters as the mean field of queues of its
// kind. A scheduler moves a thread away from its NAPI's core with a probability
// that follows utilisation ([Scheduling]). It then works while its softirq
// receives; is interrupted by the softirqs of the queue on whose core it runs,
// at unrelated times and as much as the mean queue has; finds packets colder,
// most of all across a cache boundary; and its NAPI sees another thread's
// transmit completions. An hrtimer runs where it was armed, so that a thread
// that busy polled has the softirq on its own core again: the NAPI then is away
// from its interrupt. There the driver ends polling after each full poll, which
// it reports as one packet less (NIC.AffinityBound), and the thread meets the
// softirqs of the queue whose core it is, as often as the mean queue's NAPI is at
// its interrupt (neighbourhood). Cores that busy poll
// slow each other down (CostModel.BusyPollContention). Connections per queue
// are unequal by a fixed amount (Host.Imbalance), so that near capacity some
// queues are saturated and others are not.
//
// A channel has two completion queues, armed and moderated apart, and one NAPI.
// The time of transmit moderation runs anew when the queue is armed. Both
// directions of moderation adapt as the kernel's DIM does. What it measures is
// noisier than the simulated arrivals, by NIC.RateNoise and TxRateNoise. The long
// tails of interrupt-driven cases follow: with the longest receive profile and
// nothing left to complete on the transmit side, the next interrupt waits for 64
// packets.
//
// A poll hands the stack eight packets at a time, and the rest when the driver
// has found the ring empty (CostModel.StackShare).
//
// Samples have what live probes see: lane.loops remembers between two polls what
// the BPF programs do.
//
// # What not to believe
//
// Settings must not be ranked by cells whose utilisation is above 0.9
// ([Row.Saturated]); napibusy in the closed loop is a mixture of two states whose
// shares rest on Scheduling.CatchUp, which no mechanism gives. Instructions per query
// are not modelled. The fits know three loads. Tails of interrupt-driven cases
// rest on the noise above: p99 of base and suspend0 varies by 10% and more
// between seeds for a second of simulated time, and is not monotone in load.
//
// The package may import model and gonum.
package sim
