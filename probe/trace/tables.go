package trace

import (
	"math"
	"strconv"
	"time"

	"autotune/model"
)

// tables are the forms of the lists in a sample that have a row per queue or
// per CPU.
type tables struct {
	queues *table[model.QueueSample]
	cpus   *table[model.CPUSample]
	active *table[keyed[model.Settings]]
	napis  *table[keyed[uint32]]
}

func newTables() tables {
	return tables{queues: queueTable(), cpus: cpuTable(), active: settingsTable(), napis: napiTable()}
}

func queueTable() *table[model.QueueSample] {
	type row = model.QueueSample
	columns := []column[row]{
		{
			name: "queue", required: true,
			write: func(b []byte, q *row) []byte { return appendQueueID(b, q.Queue) },
			read:  func(d *decoder, q *row) { q.Queue = d.queueID() },
		},
		number("napi_id", func(q *row) *uint32 { return &q.NAPIID }),
		number("sample_every", func(q *row) *uint32 { return &q.SampleEvery }),
		{
			name: "cpus",
			write: func(b []byte, q *row) []byte {
				return appendList(b, q.CPUs, func(b []byte, cpu *int) []byte { return strconv.AppendInt(b, int64(*cpu), 10) })
			},
			read: func(d *decoder, q *row) { q.CPUs = list(&d.scan, 0, func(cpu *int) { *cpu = int(d.scan.int()) }) },
		},
	}
	for _, loop := range []struct {
		name string
		at   func(*row) *model.PollCounts
	}{
		{"softirq", func(q *row) *model.PollCounts { return &q.Softirq }},
		{"thread", func(q *row) *model.PollCounts { return &q.Thread }},
		{"busy", func(q *row) *model.PollCounts { return &q.Busy }},
	} {
		columns = append(columns,
			counter(loop.name+"_polls", func(q *row) *uint64 { return &loop.at(q).Polls }),
			counter(loop.name+"_packets", func(q *row) *uint64 { return &loop.at(q).Packets }),
			counter(loop.name+"_empty", func(q *row) *uint64 { return &loop.at(q).Empty }),
			counter(loop.name+"_full", func(q *row) *uint64 { return &loop.at(q).Full }),
		)
	}
	for _, loop := range []struct {
		name string
		at   func(*row) **model.PollCounts
	}{
		{"timer_softirq", func(q *row) **model.PollCounts { return &q.TimerSoftirq }},
		{"timer_thread", func(q *row) **model.PollCounts { return &q.TimerThread }},
	} {
		columns = append(columns,
			part(loop.name+"_polls", loop.at, func(p *model.PollCounts) *uint64 { return &p.Polls }),
			part(loop.name+"_packets", loop.at, func(p *model.PollCounts) *uint64 { return &p.Packets }),
			part(loop.name+"_empty", loop.at, func(p *model.PollCounts) *uint64 { return &p.Empty }),
			part(loop.name+"_full", loop.at, func(p *model.PollCounts) *uint64 { return &p.Full }),
		)
	}
	timer := func(q *row) **model.TimerCounts { return &q.Timer }
	takeovers := func(q *row) **model.Takeovers { return &q.Takeovers }
	suspension := func(q *row) **model.Suspension { return &q.Suspension }
	stamps := func(q *row) **model.Stamps { return &q.Stamps }
	columns = append(columns,
		part("timer_arms", timer, func(t *model.TimerCounts) *uint64 { return &t.Arms }),
		part("timer_fires", timer, func(t *model.TimerCounts) *uint64 { return &t.Fires }),
		maybeCounter("netpoll", func(q *row) **uint64 { return &q.Netpoll }),
		part("interrupt_to_timer", takeovers, func(t *model.Takeovers) *uint64 { return &t.InterruptToTimer }),
		part("interrupt_to_application", takeovers, func(t *model.Takeovers) *uint64 { return &t.InterruptToApplication }),
		part("timer_to_interrupt", takeovers, func(t *model.Takeovers) *uint64 { return &t.TimerToInterrupt }),
		part("timer_to_application", takeovers, func(t *model.Takeovers) *uint64 { return &t.TimerToApplication }),
		part("application_to_interrupt", takeovers, func(t *model.Takeovers) *uint64 { return &t.ApplicationToInterrupt }),
		part("application_to_timer", takeovers, func(t *model.Takeovers) *uint64 { return &t.ApplicationToTimer }),
		maybeCounter("unmasked", func(q *row) **uint64 { return &q.Unmasked }),
		maybeCounter("interrupts", func(q *row) **uint64 { return &q.Interrupts }),
		maybeDuration("softirq_time_ns", func(q *row) **time.Duration { return &q.SoftirqTime }),
		maybeDuration("thread_time_ns", func(q *row) **time.Duration { return &q.ThreadTime }),
		part("suspension_started", suspension, func(p *model.Suspension) *uint64 { return &p.Started }),
		part("suspension_resumed", suspension, func(p *model.Suspension) *uint64 { return &p.Resumed }),
		part("suspension_expired", suspension, func(p *model.Suspension) *uint64 { return &p.Expired }),
		part("suspension_flushed", suspension, func(p *model.Suspension) *uint64 { return &p.Flushed }),
		column[row]{
			name: "suspension_length",
			counts: func(q *row) []uint64 {
				if q.Suspension == nil {
					return nil
				}
				return q.Suspension.Length.Counts[:]
			},
			fill: func(q *row) []uint64 {
				if q.Suspension == nil {
					q.Suspension = new(model.Suspension)
				}
				return q.Suspension.Length.Counts[:]
			},
		},
		column[row]{
			name: "work", required: true,
			counts: func(q *row) []uint64 { return q.Work[:] },
			fill:   func(q *row) []uint64 { return q.Work[:] },
		},
		maybeHistogram("ring_wait", func(q *row) **model.Histogram { return &q.RingWait }),
		maybeHistogram("socket_wait", func(q *row) **model.Histogram { return &q.SocketWait }),
		maybeHistogram("service", func(q *row) **model.Histogram { return &q.Service }),
		maybeHistogram("delay", func(q *row) **model.Histogram { return &q.Delay }),
		part("stamps_used", stamps, func(s *model.Stamps) *uint64 { return &s.Used }),
		part("stamps_absent", stamps, func(s *model.Stamps) *uint64 { return &s.Absent }),
		part("stamps_refused", stamps, func(s *model.Stamps) *uint64 { return &s.Refused }),
	)
	return newTable(columns...)
}

func cpuTable() *table[model.CPUSample] {
	type row = model.CPUSample
	return newTable(
		column[row]{
			name: "cpu", required: true,
			write: func(b []byte, c *row) []byte { return strconv.AppendInt(b, int64(c.CPU), 10) },
			read:  func(d *decoder, c *row) { c.CPU = int(d.scan.int()) },
		},
		maybeDuration("net_rx_ns", func(c *row) **time.Duration { return &c.NetRX }),
		maybeDuration("net_rx_idle_ns", func(c *row) **time.Duration { return &c.NetRXIdle }),
		maybeCounter("hard_irqs", func(c *row) **uint64 { return &c.HardIRQs }),
		maybeDuration("hard_irq_ns", func(c *row) **time.Duration { return &c.HardIRQ }),
		maybeDuration("hard_irq_idle_ns", func(c *row) **time.Duration { return &c.HardIRQIdle }),
		maybeDuration("ksoftirqd_ns", func(c *row) **time.Duration { return &c.Ksoftirqd }),
		maybeCounter("transmit_only", func(c *row) **uint64 { return &c.TransmitOnly }),
		duration("busy_ns", func(c *row) *time.Duration { return &c.Busy }),
		duration("steal_ns", func(c *row) *time.Duration { return &c.Steal }),
		counter("squeezed", func(c *row) *uint64 { return &c.Squeezed }),
		maybeCounter("cycles", func(c *row) **uint64 { return &c.Cycles }),
		maybeCounter("instructions", func(c *row) **uint64 { return &c.Instructions }),
	)
}

func keyColumn[V any]() column[keyed[V]] {
	return column[keyed[V]]{
		name: "queue", required: true,
		write: func(b []byte, row *keyed[V]) []byte { return appendQueueID(b, row.queue) },
		read:  func(d *decoder, row *keyed[V]) { row.queue = d.queueID() },
	}
}

func settingsTable() *table[keyed[model.Settings]] {
	type row = keyed[model.Settings]
	// The application's side is null where the run does not set it.
	busyPoll := func(name string, write func([]byte, model.BusyPoll) []byte, read func(*decoder, *model.BusyPoll)) column[row] {
		return column[row]{
			name: name,
			write: func(b []byte, r *row) []byte {
				if r.value.BusyPoll == (model.BusyPoll{}) {
					return append(b, "null"...)
				}
				return write(b, r.value.BusyPoll)
			},
			read: func(d *decoder, r *row) { read(d, &r.value.BusyPoll) },
		}
	}
	return newTable(
		keyColumn[model.Settings](),
		number("defer_hard_irqs", func(r *row) *uint32 { return &r.value.DeferHardIRQs }),
		duration("gro_flush_timeout_ns", func(r *row) *time.Duration { return &r.value.GROFlushTimeout }),
		duration("irq_suspend_timeout_ns", func(r *row) *time.Duration { return &r.value.IRQSuspendTimeout }),
		busyPoll("busy_poll_ns",
			func(b []byte, p model.BusyPoll) []byte { return strconv.AppendInt(b, int64(p.Span), 10) },
			func(d *decoder, p *model.BusyPoll) { p.Span = time.Duration(d.scan.int()) }),
		busyPoll("busy_poll_budget",
			func(b []byte, p model.BusyPoll) []byte { return strconv.AppendUint(b, uint64(p.Budget), 10) },
			func(d *decoder, p *model.BusyPoll) { p.Budget = uint16(d.scan.uint(math.MaxUint16)) }),
		busyPoll("prefer_busy_poll",
			func(b []byte, p model.BusyPoll) []byte { return strconv.AppendBool(b, p.Prefer) },
			func(d *decoder, p *model.BusyPoll) { p.Prefer = d.scan.boolean() }),
	)
}

func napiTable() *table[keyed[uint32]] {
	return newTable(keyColumn[uint32](), number("napi_id", func(r *keyed[uint32]) *uint32 { return &r.value }))
}
