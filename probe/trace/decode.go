package trace

import (
	"fmt"
	"math"
	"time"

	"autotune/model"
)

// decoder turns sample lines into samples. It remembers lengths between lines,
// so that a list is allocated once at its usual size; what it returns is the
// caller's and is never written again.
type decoder struct {
	scan scanner
	// tables are made for the first sample.
	tables tables
	// queues, cpus and apps are the lengths seen last.
	queues, cpus, apps int
}

// fields notes which fields an object had. Fields whose values may be null may
// also be absent: they are not known, as in a trace from before they existed.
type fields uint32

func (d *decoder) require(seen, want fields, names ...string) {
	if d.scan.err != nil || seen&want == want {
		return
	}
	for i, name := range names {
		if seen&(1<<i) == 0 {
			d.scan.fail("field %q is missing", name)
			return
		}
	}
}

// lineKind returns the kind of a line.
func lineKind(line []byte) (Kind, error) {
	s := scanner{data: line}
	if s.open('{') {
		for first := true; ; first = false {
			key, ok := s.key(first)
			if !ok {
				break
			}
			if string(key) == "kind" {
				kind := Kind(s.str())
				return kind, s.err
			}
			s.skip()
		}
	}
	if s.err == nil {
		s.fail("field %q is missing", "kind")
	}
	return "", s.err
}

func (d *decoder) sample(line []byte) (model.Sample, error) {
	if d.tables.queues == nil {
		d.tables = newTables()
	}
	d.scan = scanner{data: line}
	s := &d.scan
	var out model.Sample
	var seen fields
	if s.open('{') {
		for first := true; ; first = false {
			key, ok := s.key(first)
			if !ok {
				break
			}
			switch string(key) {
			case "at_ns":
				out.At, seen = time.Duration(s.int()), seen|1
			case "span_ns":
				out.Span, seen = time.Duration(s.int()), seen|2
			case "lost_events":
				out.Lost, seen = s.uint(math.MaxUint64), seen|4
			case "apps_unknown":
				out.AppsUnknown = s.uint(math.MaxUint64)
			case "queues":
				out.Queues = rows(d, d.tables.queues, d.queues, d.queue)
				d.queues = len(out.Queues)
			case "cpus":
				out.CPUs = rows(d, d.tables.cpus, d.cpus, d.cpu)
				d.cpus = len(out.CPUs)
			case "apps":
				out.Apps = list(s, d.apps, d.app)
				d.apps = len(out.Apps)
			case "latency":
				out.Latency = d.latency()
			case "active":
				out.Active = byQueue(d, rows(d, d.tables.active, d.queues, d.settings))
			case "napi_ids":
				out.NAPIIDs = byQueue(d, rows(d, d.tables.napis, d.queues, d.napiID))
			case "absent":
				out.Absent = byQueue(d, list(s, 0, d.reason))
			case "probe":
				out.Probe = d.probe()
			default:
				s.skip()
			}
		}
	}
	d.require(seen, 7, "at_ns", "span_ns", "lost_events")
	s.end()
	if s.err != nil {
		return model.Sample{}, fmt.Errorf("decode sample: %w: %w", ErrCorrupt, s.err)
	}
	return out, nil
}

// rows reads a list that has the form of a table or, as in version 1 of the
// format, is an array of objects.
func rows[T any](d *decoder, t *table[T], hint int, item func(*T)) []T {
	if d.scan.space() == '[' {
		return list(&d.scan, hint, item)
	}
	return t.read(d, hint)
}

// list reads an array, and nil for null. The hint only sets the first
// allocation.
func list[T any](s *scanner, hint int, item func(*T)) []T {
	if s.null() || !s.open('[') {
		return nil
	}
	out := make([]T, 0, hint)
	for first := true; s.more(first, ']'); first = false {
		out = append(out, *new(T))
		item(&out[len(out)-1])
	}
	return out
}

func (d *decoder) queue(q *model.QueueSample) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "queue":
			q.Queue, seen = d.queueID(), seen|1
		case "napi_id":
			q.NAPIID, seen = uint32(s.uint(math.MaxUint32)), seen|2
		case "softirq":
			d.polls(&q.Softirq)
			seen |= 4
		case "thread":
			d.polls(&q.Thread)
			seen |= 8
		case "busy":
			d.polls(&q.Busy)
			seen |= 16
		case "work":
			d.counts(q.Work[:])
			seen |= 32
		case "sample_every":
			q.SampleEvery, seen = uint32(s.uint(math.MaxUint32)), seen|64
		case "timer":
			q.Timer = d.timer()
		case "timer_softirq":
			q.TimerSoftirq = d.pollsOrNil()
		case "timer_thread":
			q.TimerThread = d.pollsOrNil()
		case "netpoll":
			q.Netpoll = d.count()
		case "takeovers":
			q.Takeovers = d.takeovers()
		case "unmasked":
			q.Unmasked = d.count()
		case "interrupts":
			q.Interrupts = d.count()
		case "softirq_time_ns":
			q.SoftirqTime = d.duration()
		case "suspension":
			q.Suspension = d.suspension()
		case "thread_time_ns":
			q.ThreadTime = d.duration()
		case "ring_wait":
			q.RingWait = d.histogram()
		case "socket_wait":
			q.SocketWait = d.histogram()
		case "service":
			q.Service = d.histogram()
		case "delay":
			q.Delay = d.histogram()
		default:
			s.skip()
		}
	}
	d.require(seen, 127, "queue", "napi_id", "softirq", "thread", "busy", "work", "sample_every")
}

func (d *decoder) polls(p *model.PollCounts) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "polls":
			p.Polls, seen = s.uint(math.MaxUint64), seen|1
		case "packets":
			p.Packets, seen = s.uint(math.MaxUint64), seen|2
		case "empty":
			p.Empty, seen = s.uint(math.MaxUint64), seen|4
		case "full":
			p.Full, seen = s.uint(math.MaxUint64), seen|8
		default:
			s.skip()
		}
	}
	d.require(seen, 15, "polls", "packets", "empty", "full")
}

func (d *decoder) timer() *model.TimerCounts {
	s := &d.scan
	if s.null() || !s.open('{') {
		return nil
	}
	out := new(model.TimerCounts)
	var seen fields
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "arms":
			out.Arms, seen = s.uint(math.MaxUint64), seen|1
		case "fires":
			out.Fires, seen = s.uint(math.MaxUint64), seen|2
		default:
			s.skip()
		}
	}
	d.require(seen, 3, "arms", "fires")
	return out
}

func (d *decoder) cpu(c *model.CPUSample) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "cpu":
			c.CPU, seen = int(s.int()), seen|1
		case "busy_ns":
			c.Busy, seen = time.Duration(s.int()), seen|2
		case "steal_ns":
			c.Steal, seen = time.Duration(s.int()), seen|4
		case "squeezed":
			c.Squeezed, seen = s.uint(math.MaxUint64), seen|8
		case "net_rx_ns":
			c.NetRX = d.duration()
		case "net_rx_idle_ns":
			c.NetRXIdle = d.duration()
		case "hard_irqs":
			c.HardIRQs = d.count()
		case "hard_irq_ns":
			c.HardIRQ = d.duration()
		case "hard_irq_idle_ns":
			c.HardIRQIdle = d.duration()
		case "ksoftirqd_ns":
			c.Ksoftirqd = d.duration()
		case "transmit_only":
			c.TransmitOnly = d.count()
		case "cycles":
			c.Cycles = d.count()
		case "instructions":
			c.Instructions = d.count()
		default:
			s.skip()
		}
	}
	d.require(seen, 15, "cpu", "busy_ns", "steal_ns", "squeezed")
}

func (d *decoder) app(a *model.AppSample) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "pid":
			a.PID, seen = int(s.int()), seen|1
		case "comm":
			a.Comm, seen = s.str(), seen|2
		case "cpu_ns":
			a.CPU, seen = time.Duration(s.int()), seen|4
		case "waits":
			if s.null() {
				a.Waits = nil
				break
			}
			a.Waits = new([model.WorkBuckets]uint64)
			d.counts(a.Waits[:])
		case "events":
			a.Events = d.count()
		case "full":
			a.Full = d.count()
		case "busy_polls":
			a.BusyPolls = d.busyPolls()
		case "cgroup":
			a.Cgroup = s.str()
		case "selected":
			a.Selected = s.boolean()
		case "contexts":
			a.Contexts = list(s, 0, d.context)
		default:
			s.skip()
		}
	}
	d.require(seen, 7, "pid", "comm", "cpu_ns")
}

func (d *decoder) context(c *model.EpollContext) {
	s := &d.scan
	var seen fields
	if !s.open('{') {
		return
	}
	for first := true; ; first = false {
		key, ok := s.key(first)
		if !ok {
			break
		}
		switch string(key) {
		case "fd":
			c.FD, seen = int(s.int()), seen|1
		case "busy_poll_ns":
			c.BusyPoll, seen = time.Duration(s.int()), seen|2
		case "busy_poll_budget":
			c.Budget, seen = uint16(s.uint(math.MaxUint16)), seen|4
		case "opaque":
			c.Opaque = s.boolean()
		case "prefer_busy_poll":
			c.Prefer, seen = s.boolean(), seen|8
		case "napi_ids":
			c.NAPIIDs = list(s, 0, func(id *uint32) { *id = uint32(s.uint(math.MaxUint32)) })
		case "more":
			c.MoreNAPIs = s.boolean()
		default:
			s.skip()
		}
	}
	d.require(seen, 15, "fd", "busy_poll_ns", "busy_poll_budget", "prefer_busy_poll")
}

func (d *decoder) duration() *time.Duration {
	if d.scan.null() {
		return nil
	}
	out := time.Duration(d.scan.int())
	return &out
}

func (d *decoder) histogram() *model.Histogram {
	if d.scan.null() {
		return nil
	}
	out := new(model.Histogram)
	d.counts(out.Counts[:])
	return out
}

// runs reads counts as version 1 of the format has them, runs of [first bucket,
// count, count, ...], into counts, which are zero. Runs may come in any order,
// but no bucket twice.
func (d *decoder) runs(counts []uint64) {
	s := &d.scan
	if !s.open('[') {
		return
	}
	for first := true; s.more(first, ']'); first = false {
		if !s.open('[') {
			return
		}
		if !s.more(true, ']') {
			s.fail("run without a first bucket")
			return
		}
		i := s.uint(uint64(len(counts)))
		for {
			n, ok := s.element()
			if !ok {
				break
			}
			if i >= uint64(len(counts)) {
				s.fail("bucket %d does not exist (there are %d)", i, len(counts))
				return
			}
			if counts[i] != 0 && n != 0 {
				s.fail("bucket %d is counted twice", i)
				return
			}
			counts[i] += n
			i++
		}
	}
}

// queueID reads a queue as [model.Queue.String] writes it.
func (d *decoder) queueID() model.Queue {
	s := &d.scan
	raw, _, ok := s.rawString()
	if !ok {
		return model.Queue{}
	}
	netns, pos, ok := parseUint(raw, 0)
	if !ok || pos == len(raw) || raw[pos] != ':' {
		s.fail("queue %q is not netns:ifindex:index", raw)
		return model.Queue{}
	}
	ifindex, pos, ok1 := parseInt(raw, pos+1)
	if !ok1 || pos == len(raw) || raw[pos] != ':' {
		s.fail("queue %q is not netns:ifindex:index", raw)
		return model.Queue{}
	}
	index, pos, ok2 := parseInt(raw, pos+1)
	if !ok2 || pos != len(raw) {
		s.fail("queue %q is not netns:ifindex:index", raw)
		return model.Queue{}
	}
	return model.Queue{Netns: netns, Ifindex: ifindex, Index: index}
}

func parseInt(data []byte, pos int) (n, end int, ok bool) {
	negative := pos < len(data) && data[pos] == '-'
	if negative {
		pos++
	}
	magnitude, end, ok := parseUint(data, pos)
	switch {
	case !ok:
		return 0, end, false
	case negative && magnitude <= 1<<63:
		return int(-magnitude), end, true
	case !negative && magnitude <= math.MaxInt64:
		return int(magnitude), end, true
	}
	return 0, end, false
}
