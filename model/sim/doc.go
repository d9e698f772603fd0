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
// What couples queues on a real host enters as the mean field of identical
// queues. A scheduler moves a thread away from its NAPI's core with a
// probability that follows utilisation ([Scheduling]). It then works while its
// softirq receives; is interrupted by the softirqs of the queue on whose core
// it runs, which are this queue's own at unrelated times; finds packets colder,
// most of all across a cache boundary; and its NAPI sees another thread's
// transmit completions. Connections per queue are unequal by a fixed amount
// (Host.Imbalance), so that near capacity some queues are saturated and others
// are not.
//
// Both directions of interrupt moderation adapt as the kernel's DIM does. What
// the published runs show is a receive side that walks through its profiles at
// random, with a pause of the queue's interrupts at each change, and a transmit
// side that rests at its longest period; NIC.RateNoise, TxRateNoise and
// ApplyStall are that.
//
// # What not to believe
//
// Settings must not be ranked by cells whose utilisation is above 0.9
// ([Row.Saturated]); napibusy in the closed loop is a mixture of two states in
// the published runs that the model does not reproduce. Instructions per query
// are not modelled. The fits know three loads. Tails of interrupt-driven cases
// rest on the random walk above: p99 varies by 10% between seeds for a second
// of simulated time up to 600K, and by several times at 800K, where the busiest
// queue is overloaded whenever its moderation is at its shortest period.
//
// The package may import model and gonum.
package sim
