package sim

import (
	"time"

	"autotune/model"
)

// collect turns the lanes' counters into a sample, adds them to the totals and
// clears them.
func (s *Simulator) collect(window time.Duration) model.Sample {
	out := model.Sample{
		At: s.end, Span: window,
		Queues:  make([]model.QueueSample, len(s.lanes)),
		CPUs:    make([]model.CPUSample, len(s.lanes)),
		Active:  make(model.Config, len(s.lanes)),
		NAPIIDs: make(map[model.Queue]uint32, len(s.lanes)),
		Probe:   &model.ProbeSample{Cost: new(time.Duration), Budget: probeBudget, PollEvery: 1},
	}
	latency := model.Latency{Source: "server-side delay"}
	app := model.AppSample{
		PID: 1, Comm: "server", Cgroup: "/system.slice/server.service",
		Waits: new([model.WorkBuckets]uint64), Events: new(uint64), Full: new(uint64),
		BusyPolls: new(model.BusyPolls), Selected: s.options.Selected,
	}
	if s.options.Latency == LatencyClient {
		latency.Source = "simulated client"
	}
	s.last, s.lastSpan = counters{}, window
	for i, l := range s.lanes {
		s.settle(i, l)
		s.last.merge(&l.count)
		seen := l.count
		s.noise[i].blur(&seen)
		c := &seen
		q := SimulatedQueue(i)
		out.NAPIIDs[q] = napiID(i)
		out.Queues[i] = l.sample(q, c)
		out.CPUs[i] = l.cpuSample(i, c)
		app.CPU += time.Duration(c.thread)
		if !l.host.Host.ThreadedNAPI {
			// What a softirq takes from the thread that it interrupts is charged
			// to that thread, and what the NAPI's own thread takes is not.
			app.CPU += time.Duration(c.softirq - c.softirqIdle)
		}
		for n, count := range c.waits {
			app.Waits[n] += count
		}
		*app.Events += c.waitEvents
		*app.Full += c.waitsFull
		app.BusyPolls.Polls += c.busyPolls.Polls
		app.BusyPolls.Packets += c.busyPolls.Packets
		app.Contexts = append(app.Contexts, model.EpollContext{
			FD: 3 + i, BusyPoll: l.wait.BusyPoll, Budget: uint16(l.wait.Budget), Prefer: l.wait.Prefer,
			NAPIIDs: []uint32{napiID(i)},
		})
		out.Active[q] = l.knobs
		switch s.options.Latency {
		case LatencyServer:
			latency.Histogram.Merge(&c.delay)
		case LatencyClient:
			out.Queues[i].Delay = copyOf(c.client)
			latency.Histogram.Merge(&c.client)
		}
		l.count = counters{}
		c = &l.count
		c.softirq, c.softirqIdle = s.over[i].softirq, s.over[i].softirqIdle
		c.thread, c.idleExit = s.over[i].thread, s.over[i].idleExit
	}
	s.total.merge(&s.last)
	if latency.Histogram.Count() > 0 {
		out.Latency = &latency
	}
	out.Apps = []model.AppSample{app}
	return out
}

// probeBudget is what live probes may take by default, per second.
const probeBudget = 10 * time.Millisecond

// sample returns what the lane's NAPI did while it counted c.
func (l *lane) sample(q model.Queue, c *counters) model.QueueSample {
	out := model.QueueSample{
		Queue: q, NAPIID: napiID(q.Index), Softirq: c.softirqPolls.PollCounts, Busy: c.busyPolls.PollCounts, Work: c.work,
		TimerSoftirq: copyOf(c.timerPolls.PollCounts), TimerThread: new(model.PollCounts),
		Netpoll: new(uint64), Takeovers: c.takeoverCounts(), Unmasked: copyOf(c.unmasked), Interrupts: copyOf(c.irqs),
		SoftirqTime: durationOf(c.softirqPoll),
		Suspension: &model.Suspension{
			Started: c.suspended, Resumed: c.resumed, Expired: c.expired, Flushed: c.flushed, Length: c.suspension,
		},
		Timer:    &model.TimerCounts{Arms: c.timerArms, Fires: c.timerFires},
		RingWait: copyOf(c.ringWait), SocketWait: copyOf(c.socketWait),
		Service: copyOf(c.service), Delay: copyOf(c.delay), SampleEvery: uint32(l.sampleEvery),
	}
	if l.host.Host.ThreadedNAPI {
		out.Thread, out.Softirq = out.Softirq, model.PollCounts{}
		out.TimerThread, out.TimerSoftirq = out.TimerSoftirq, out.TimerThread
		out.ThreadTime, out.SoftirqTime = durationOf(c.softirq-c.hardIRQ), new(time.Duration)
	}
	if polls := out.Polls(); polls.Polls > 0 {
		out.CPUs = []int{q.Index}
	}
	return out
}

// cpuSample returns what the lane's core did while it counted c.
func (l *lane) cpuSample(cpu int, c *counters) model.CPUSample {
	out := model.CPUSample{
		CPU: cpu, NetRX: durationOf(c.softirq - c.hardIRQ), NetRXIdle: durationOf(c.softirqIdle - c.hardIRQIdle),
		HardIRQs: copyOf(c.irqs), HardIRQ: durationOf(c.hardIRQ), HardIRQIdle: durationOf(c.hardIRQIdle),
		Ksoftirqd: new(time.Duration), TransmitOnly: new(uint64),
		Busy: time.Duration(c.softirq + c.thread), Squeezed: c.squeezed,
	}
	if l.host.Host.ThreadedNAPI {
		out.NetRX, out.NetRXIdle = new(time.Duration), new(time.Duration)
	}
	return out
}

// durationOf returns a time of at least 0: what settle moved to the next window
// is not taken from the parts.
func durationOf(ns int64) *time.Duration {
	d := time.Duration(max(0, ns))
	return &d
}

// settle moves the time by which lane i has overrun the window, an action
// being indivisible, to the next one.
func (s *Simulator) settle(i int, l *lane) {
	over := l.now - int64(s.end)
	s.over[i] = overrun{}
	if over <= 0 {
		return
	}
	c := &l.count
	take := func(from, to *int64) {
		n := min(over, *from)
		*from -= n
		*to += n
		over -= n
	}
	take(&c.thread, &s.over[i].thread)
	idle := c.softirqIdle
	before := c.softirq
	take(&c.softirq, &s.over[i].softirq)
	if taken := before - c.softirq; taken > 0 && idle > c.softirq {
		s.over[i].softirqIdle = idle - c.softirq
		c.softirqIdle = c.softirq
	}
	take(&c.idleExit, &s.over[i].idleExit)
}

func copyOf[T any](v T) *T { return &v }

// SimulatedQueue returns the identity of the i-th simulated queue: it is in
// network namespace 1, on the device with index 2.
func SimulatedQueue(i int) model.Queue { return model.Queue{Netns: 1, Ifindex: 2, Index: i} }

func napiID(i int) uint32 { return uint32(8193 + i) }
