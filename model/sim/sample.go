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
		Latency: &model.Latency{Source: "server-side delay"},
	}
	app := model.AppSample{
		PID: 1, Comm: "server", Waits: new([model.WorkBuckets]uint64), Selected: s.options.Selected,
	}
	if s.options.Latency == LatencyClient {
		out.Latency.Source = "simulated client"
	}
	s.last, s.lastSpan = counters{}, window
	for i, l := range s.lanes {
		s.settle(i, l)
		s.last.merge(&l.count)
		seen := l.count
		s.noise[i].blur(&seen)
		c := &seen
		q := SimulatedQueue(i)
		softirqNAPI, busy := c.softirqPolls.PollCounts, c.busyPolls.PollCounts
		out.Queues[i] = model.QueueSample{
			Queue: q, NAPIID: napiID(i), Softirq: softirqNAPI, Busy: busy, Work: c.work,
			Timer:    &model.TimerCounts{Arms: c.timerArms, Fires: c.timerFires},
			RingWait: copyOf(c.ringWait), SocketWait: copyOf(c.socketWait),
			Service: copyOf(c.service), Delay: copyOf(c.delay), SampleEvery: uint32(l.sampleEvery),
		}
		if l.host.Host.ThreadedNAPI {
			spent := time.Duration(c.softirq)
			out.Queues[i].Thread, out.Queues[i].Softirq = softirqNAPI, model.PollCounts{}
			out.Queues[i].ThreadTime = &spent
		}
		netRX, netRXIdle := time.Duration(c.softirq), time.Duration(c.softirqIdle)
		out.CPUs[i] = model.CPUSample{
			CPU: i, NetRX: &netRX, NetRXIdle: &netRXIdle,
			Busy: time.Duration(c.softirq + c.thread), Squeezed: c.squeezed,
		}
		app.CPU += time.Duration(c.thread + c.softirq - c.softirqIdle)
		for n, count := range c.waits {
			app.Waits[n] += count
		}
		app.Contexts = append(app.Contexts, model.EpollContext{
			FD: 3 + i, BusyPoll: l.wait.BusyPoll, Budget: uint16(l.wait.Budget), Prefer: l.wait.Prefer,
			NAPIIDs: []uint32{napiID(i)},
		})
		out.Active[q] = l.knobs
		switch s.options.Latency {
		case LatencyServer:
			out.Latency.Histogram.Merge(&c.delay)
		case LatencyClient:
			out.Queues[i].Delay = copyOf(c.client)
			out.Latency.Histogram.Merge(&c.client)
		}
		l.count = counters{}
		c = &l.count
		c.softirq, c.softirqIdle = s.over[i].softirq, s.over[i].softirqIdle
		c.thread, c.idleExit = s.over[i].thread, s.over[i].idleExit
	}
	s.total.merge(&s.last)
	out.Apps = []model.AppSample{app}
	return out
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

func copyOf(h model.Histogram) *model.Histogram { return &h }

// SimulatedQueue returns the identity of the i-th simulated queue: it is in
// network namespace 1, on the device with index 2.
func SimulatedQueue(i int) model.Queue { return model.Queue{Netns: 1, Ifindex: 2, Index: i} }

func napiID(i int) uint32 { return uint32(8193 + i) }
