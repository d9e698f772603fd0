package sim

import "autotune/model"

// pollCounter counts the polls of one loop.
type pollCounter struct{ model.PollCounts }

func (c *pollCounter) add(work, budget int) {
	c.Polls++
	c.Packets += uint64(work)
	switch work {
	case 0:
		c.Empty++
	case budget:
		c.Full++
	}
}

// counters are what a lane did since they were last cleared.
type counters struct {
	// Fate of requests and packets.
	due, sent, arrived, dropped, retried, served uint64

	softirqPolls, busyPolls pollCounter
	work                    [model.WorkBuckets]uint64
	irqs                    uint64
	timerArms, timerFires   uint64
	arms                    uint64
	squeezed                uint64
	waits                   [model.WorkBuckets]uint64
	waitCalls, waitEvents   uint64
	waitsFull               uint64 // returned as many events as there was room for

	// Which loop started polls (timerPolls are those of the hrtimer, part of
	// softirqPolls), which took over from which, how often the defer count ran
	// out, and what became of suspensions.
	timerPolls                           pollCounter
	takeovers                            [starters][starters]uint64
	unmasked                             uint64
	suspended, resumed, expired, flushed uint64
	suspension                           model.Histogram

	// Core time, ns: in interrupts and softirqs (softirqIdle of it while idle),
	// in the thread, and in leaving idle states.
	softirq, softirqIdle, thread, idleExit int64
	// Of softirq and softirqIdle, what the device's interrupt handler took; and
	// the time of the softirq's polls.
	hardIRQ, hardIRQIdle, softirqPoll int64

	ringWait, socketWait, service, delay model.Histogram
	latency                              latencies
	// client has the latencies of sampled connections, where samples show the
	// client's.
	client model.Histogram
}

func (c *counters) merge(o *counters) {
	c.due += o.due
	c.sent += o.sent
	c.arrived += o.arrived
	c.dropped += o.dropped
	c.retried += o.retried
	c.served += o.served
	c.softirqPolls.PollCounts = c.softirqPolls.Plus(o.softirqPolls.PollCounts)
	c.busyPolls.PollCounts = c.busyPolls.Plus(o.busyPolls.PollCounts)
	for i := range c.work {
		c.work[i] += o.work[i]
		c.waits[i] += o.waits[i]
	}
	c.irqs += o.irqs
	c.timerArms += o.timerArms
	c.timerFires += o.timerFires
	c.arms += o.arms
	c.squeezed += o.squeezed
	c.waitCalls += o.waitCalls
	c.waitEvents += o.waitEvents
	c.waitsFull += o.waitsFull
	c.timerPolls.PollCounts = c.timerPolls.Plus(o.timerPolls.PollCounts)
	for from := range c.takeovers {
		for to := range c.takeovers[from] {
			c.takeovers[from][to] += o.takeovers[from][to]
		}
	}
	c.unmasked += o.unmasked
	c.suspended += o.suspended
	c.resumed += o.resumed
	c.expired += o.expired
	c.flushed += o.flushed
	c.suspension.Merge(&o.suspension)
	c.softirq += o.softirq
	c.softirqIdle += o.softirqIdle
	c.thread += o.thread
	c.idleExit += o.idleExit
	c.hardIRQ += o.hardIRQ
	c.hardIRQIdle += o.hardIRQIdle
	c.softirqPoll += o.softirqPoll
	c.ringWait.Merge(&o.ringWait)
	c.socketWait.Merge(&o.socketWait)
	c.service.Merge(&o.service)
	c.delay.Merge(&o.delay)
	c.client.Merge(&o.client)
	c.latency.merge(&o.latency)
}
