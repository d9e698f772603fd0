package main

import (
	"encoding/json"
	"strconv"
	"time"

	"autotune/model"
	"autotune/probe/trace"
)

// The tables of an export. The tags name the columns, in CSV too; a pointer is
// null where it was not observed. Times of day are microseconds since 1970.

// exportWindow is what every row begins with.
type exportWindow struct {
	Time *int64 `parquet:"time,optional,timestamp(microsecond)"`
	At   int64  `parquet:"at_ns"`
	Span int64  `parquet:"span_ns"`
}

// exportQueue names a queue.
type exportQueue struct {
	Netns   uint64  `parquet:"netns"`
	Ifindex int64   `parquet:"ifindex"`
	Ifname  *string `parquet:"ifname,optional"`
	Queue   int64   `parquet:"queue"`
}

// queueRow is one queue in one window.
type queueRow struct {
	exportWindow
	exportQueue
	NAPIID *uint32 `parquet:"napi_id,optional"`
	// Absent is why the queue has no read-back.
	Absent  *string `parquet:"absent,optional"`
	Lost    uint64  `parquet:"lost_events"`
	Defer   *uint32 `parquet:"defer_hard_irqs,optional"`
	Flush   *int64  `parquet:"gro_flush_timeout_ns,optional"`
	Suspend *int64  `parquet:"irq_suspend_timeout_ns,optional"`

	Polls   *uint64 `parquet:"polls,optional"`
	Packets *uint64 `parquet:"packets,optional"`

	SoftirqPolls   *uint64 `parquet:"softirq_polls,optional"`
	SoftirqPackets *uint64 `parquet:"softirq_packets,optional"`
	SoftirqEmpty   *uint64 `parquet:"softirq_empty,optional"`
	SoftirqFull    *uint64 `parquet:"softirq_full,optional"`
	ThreadPolls    *uint64 `parquet:"thread_polls,optional"`
	ThreadPackets  *uint64 `parquet:"thread_packets,optional"`
	ThreadEmpty    *uint64 `parquet:"thread_empty,optional"`
	ThreadFull     *uint64 `parquet:"thread_full,optional"`
	BusyPolls      *uint64 `parquet:"busy_polls,optional"`
	BusyPackets    *uint64 `parquet:"busy_packets,optional"`
	BusyEmpty      *uint64 `parquet:"busy_empty,optional"`
	BusyFull       *uint64 `parquet:"busy_full,optional"`

	TimerPolls   *uint64 `parquet:"timer_polls,optional"`
	TimerPackets *uint64 `parquet:"timer_packets,optional"`
	TimerArms    *uint64 `parquet:"timer_arms,optional"`
	TimerFires   *uint64 `parquet:"timer_fires,optional"`
	Netpoll      *uint64 `parquet:"netpoll,optional"`
	Unmasked     *uint64 `parquet:"unmasked,optional"`
	Interrupts   *uint64 `parquet:"interrupts,optional"`
	Suspended    *uint64 `parquet:"suspensions,optional"`
	Expired      *uint64 `parquet:"suspensions_expired,optional"`
	SoftirqTime  *int64  `parquet:"softirq_time_ns,optional"`
	ThreadTime   *int64  `parquet:"thread_time_ns,optional"`

	SampleEvery *uint32 `parquet:"sample_every,optional"`
	RingCount   *uint64 `parquet:"ring_wait_count,optional"`
	RingP50     *int64  `parquet:"ring_wait_p50_ns,optional"`
	RingP99     *int64  `parquet:"ring_wait_p99_ns,optional"`
	RingSource  *string `parquet:"ring_wait_source,optional"`
	SocketCount *uint64 `parquet:"socket_wait_count,optional"`
	SocketP50   *int64  `parquet:"socket_wait_p50_ns,optional"`
	SocketP99   *int64  `parquet:"socket_wait_p99_ns,optional"`
	ServeCount  *uint64 `parquet:"service_count,optional"`
	ServeP50    *int64  `parquet:"service_p50_ns,optional"`
	ServeP99    *int64  `parquet:"service_p99_ns,optional"`
	DelayCount  *uint64 `parquet:"delay_count,optional"`
	DelayP50    *int64  `parquet:"delay_p50_ns,optional"`
	DelayP90    *int64  `parquet:"delay_p90_ns,optional"`
	DelayP99    *int64  `parquet:"delay_p99_ns,optional"`
}

// histogramRow is one bucket that is not empty.
type histogramRow struct {
	exportWindow
	exportQueue
	// Histogram is work, ring_wait, socket_wait, service, delay or
	// suspension_length.
	Histogram string `parquet:"histogram"`
	// Low and High bound the bucket: [low, high) in nanoseconds, or for work
	// the packets of the poll, twice; null where there is no upper bound.
	Low   int64  `parquet:"low"`
	High  *int64 `parquet:"high,optional"`
	Count uint64 `parquet:"count"`
}

// cpuRow is one CPU in one window.
type cpuRow struct {
	exportWindow
	CPU          int64   `parquet:"cpu"`
	Busy         int64   `parquet:"busy_ns"`
	Steal        int64   `parquet:"steal_ns"`
	NetRX        *int64  `parquet:"net_rx_ns,optional"`
	NetRXIdle    *int64  `parquet:"net_rx_idle_ns,optional"`
	HardIRQs     *uint64 `parquet:"hard_irqs,optional"`
	HardIRQ      *int64  `parquet:"hard_irq_ns,optional"`
	HardIRQIdle  *int64  `parquet:"hard_irq_idle_ns,optional"`
	Ksoftirqd    *int64  `parquet:"ksoftirqd_ns,optional"`
	TransmitOnly *uint64 `parquet:"transmit_only,optional"`
	Squeezed     uint64  `parquet:"squeezed"`
	Cycles       *uint64 `parquet:"cycles,optional"`
	Instructions *uint64 `parquet:"instructions,optional"`
}

// appRow is one process in one window.
type appRow struct {
	exportWindow
	PID         int64   `parquet:"pid"`
	Comm        string  `parquet:"comm"`
	Cgroup      *string `parquet:"cgroup,optional"`
	CPU         int64   `parquet:"cpu_ns"`
	Returns     *uint64 `parquet:"epoll_returns,optional"`
	Empty       *uint64 `parquet:"epoll_empty_returns,optional"`
	Full        *uint64 `parquet:"epoll_full_returns,optional"`
	Events      *uint64 `parquet:"epoll_events,optional"`
	BusyPolls   *uint64 `parquet:"busy_polls,optional"`
	BusyPackets *uint64 `parquet:"busy_packets,optional"`
	Contexts    *int64  `parquet:"epoll_contexts,optional"`
	Prefer      *int64  `parquet:"epoll_contexts_prefer_busy_poll,optional"`
}

// decisionRow is one entry of the journal.
type decisionRow struct {
	Time        *int64   `parquet:"time,optional,timestamp(microsecond)"`
	At          int64    `parquet:"at_ns"`
	Queue       string   `parquet:"queue"`
	Policy      string   `parquet:"policy"`
	Purpose     string   `parquet:"purpose"`
	Verdict     string   `parquet:"verdict"`
	Guard       string   `parquet:"guard"`
	Why         string   `parquet:"why"`
	FromDefer   *uint32  `parquet:"from_defer_hard_irqs,optional"`
	FromFlush   *int64   `parquet:"from_gro_flush_timeout_ns,optional"`
	FromSuspend *int64   `parquet:"from_irq_suspend_timeout_ns,optional"`
	ToDefer     *uint32  `parquet:"to_defer_hard_irqs,optional"`
	ToFlush     *int64   `parquet:"to_gro_flush_timeout_ns,optional"`
	ToSuspend   *int64   `parquet:"to_irq_suspend_timeout_ns,optional"`
	Propensity  *float64 `parquet:"propensity,optional"`
}

// rowMaker makes the rows of the records of one trace.
type rowMaker struct {
	header trace.Header
	names  map[tracedDevice]string
}

func newRowMaker(h trace.Header) rowMaker { return rowMaker{header: h, names: tracedIfnames(h)} }

// wall is a time since boot as microseconds since 1970.
func (m rowMaker) wall(at time.Duration) *int64 {
	if m.header.StartedWall == nil {
		return nil
	}
	us := m.header.StartedWall.Add(at - m.header.StartedAt).UnixMicro()
	return &us
}

func (m rowMaker) window(s *model.Sample) exportWindow {
	return exportWindow{Time: m.wall(s.At), At: int64(s.At), Span: int64(s.Span)}
}

func (m rowMaker) queue(q model.Queue) exportQueue {
	out := exportQueue{Netns: q.Netns, Ifindex: int64(q.Ifindex), Queue: int64(q.Index)}
	if name, ok := m.names[deviceOf(q)]; ok {
		out.Ifname = &name
	}
	return out
}

func (m rowMaker) queues(r *trace.Record) ([]queueRow, error) {
	if r.Kind != trace.KindSample {
		return nil, nil
	}
	s := &r.Sample
	observed := make(map[model.Queue]*model.QueueSample, len(s.Queues))
	// A queue that samples do not read back is still one that was seen.
	all := map[model.Queue]bool{}
	for i := range s.Queues {
		observed[s.Queues[i].Queue] = &s.Queues[i]
		all[s.Queues[i].Queue] = true
	}
	for _, q := range sampledQueues(s) {
		all[q] = true
	}
	rows := make([]queueRow, 0, len(all))
	for _, q := range sortedQueueSet(all) {
		row := queueRow{exportWindow: m.window(s), exportQueue: m.queue(q), Lost: s.Lost}
		if id, ok := s.NAPIIDs[q]; ok {
			row.NAPIID = &id
		}
		if why, ok := s.Absent[q]; ok {
			row.Absent = &why
		}
		if a, ok := s.Active[q]; ok {
			row.Defer, row.Flush, row.Suspend = &a.DeferHardIRQs, nanoseconds(&a.GROFlushTimeout), nanoseconds(&a.IRQSuspendTimeout)
		}
		if o := observed[q]; o != nil {
			row.observe(o)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (row *queueRow) observe(q *model.QueueSample) {
	polls := q.Polls()
	row.Polls, row.Packets = &polls.Polls, &polls.Packets
	if row.NAPIID == nil {
		row.NAPIID = &q.NAPIID
	}
	row.SoftirqPolls, row.SoftirqPackets, row.SoftirqEmpty, row.SoftirqFull = &q.Softirq.Polls, &q.Softirq.Packets, &q.Softirq.Empty, &q.Softirq.Full
	row.ThreadPolls, row.ThreadPackets, row.ThreadEmpty, row.ThreadFull = &q.Thread.Polls, &q.Thread.Packets, &q.Thread.Empty, &q.Thread.Full
	row.BusyPolls, row.BusyPackets, row.BusyEmpty, row.BusyFull = &q.Busy.Polls, &q.Busy.Packets, &q.Busy.Empty, &q.Busy.Full
	if q.TimerSoftirq != nil && q.TimerThread != nil {
		timer := q.TimerSoftirq.Plus(*q.TimerThread)
		row.TimerPolls, row.TimerPackets = &timer.Polls, &timer.Packets
	}
	if q.Timer != nil {
		row.TimerArms, row.TimerFires = &q.Timer.Arms, &q.Timer.Fires
	}
	if q.Suspension != nil {
		row.Suspended, row.Expired = &q.Suspension.Started, &q.Suspension.Expired
	}
	row.Netpoll, row.Unmasked, row.Interrupts = q.Netpoll, q.Unmasked, q.Interrupts
	row.SoftirqTime, row.ThreadTime = nanoseconds(q.SoftirqTime), nanoseconds(q.ThreadTime)
	row.SampleEvery = &q.SampleEvery
	row.RingCount, row.RingP50, row.RingP99 = countOf(q.RingWait), quantileNs(q.RingWait, 0.5), quantileNs(q.RingWait, 0.99)
	if source := string(q.RingWaitSource()); source != "" {
		row.RingSource = &source
	}
	row.SocketCount, row.SocketP50, row.SocketP99 = countOf(q.SocketWait), quantileNs(q.SocketWait, 0.5), quantileNs(q.SocketWait, 0.99)
	row.ServeCount, row.ServeP50, row.ServeP99 = countOf(q.Service), quantileNs(q.Service, 0.5), quantileNs(q.Service, 0.99)
	row.DelayCount, row.DelayP50, row.DelayP99 = countOf(q.Delay), quantileNs(q.Delay, 0.5), quantileNs(q.Delay, 0.99)
	row.DelayP90 = quantileNs(q.Delay, 0.9)
}

func (m rowMaker) histograms(r *trace.Record) ([]histogramRow, error) {
	if r.Kind != trace.KindSample {
		return nil, nil
	}
	s := &r.Sample
	var rows []histogramRow
	for i := range s.Queues {
		q := &s.Queues[i]
		row := histogramRow{exportWindow: m.window(s), exportQueue: m.queue(q.Queue), Histogram: "work"}
		for packets, n := range q.Work {
			if n == 0 {
				continue
			}
			row.Low, row.High, row.Count = int64(packets), new(int64), n
			*row.High = int64(packets)
			if packets == model.WorkBuckets-1 {
				row.High = nil
			}
			rows = append(rows, row)
		}
		named := []struct {
			name string
			h    *model.Histogram
		}{{"ring_wait", q.RingWait}, {"socket_wait", q.SocketWait}, {"service", q.Service}, {"delay", q.Delay}}
		if q.Suspension != nil {
			named = append(named, struct {
				name string
				h    *model.Histogram
			}{"suspension_length", &q.Suspension.Length})
		}
		for _, h := range named {
			if h.h == nil {
				continue
			}
			row.Histogram = h.name
			for bucket, n := range h.h.Counts {
				if n == 0 {
					continue
				}
				low, high := model.HistogramBounds(bucket)
				row.Low, row.High, row.Count = int64(low), nanoseconds(&high), n
				if bucket == model.HistogramBuckets-1 {
					row.High = nil
				}
				rows = append(rows, row)
			}
		}
	}
	return rows, nil
}

func (m rowMaker) cpus(r *trace.Record) ([]cpuRow, error) {
	if r.Kind != trace.KindSample {
		return nil, nil
	}
	rows := make([]cpuRow, 0, len(r.Sample.CPUs))
	for i := range r.Sample.CPUs {
		c := &r.Sample.CPUs[i]
		rows = append(rows, cpuRow{
			exportWindow: m.window(&r.Sample), CPU: int64(c.CPU), Busy: int64(c.Busy), Steal: int64(c.Steal),
			NetRX: nanoseconds(c.NetRX), NetRXIdle: nanoseconds(c.NetRXIdle),
			HardIRQs: c.HardIRQs, HardIRQ: nanoseconds(c.HardIRQ), HardIRQIdle: nanoseconds(c.HardIRQIdle),
			Ksoftirqd: nanoseconds(c.Ksoftirqd), TransmitOnly: c.TransmitOnly, Squeezed: c.Squeezed,
			Cycles: c.Cycles, Instructions: c.Instructions,
		})
	}
	return rows, nil
}

func (m rowMaker) apps(r *trace.Record) ([]appRow, error) {
	if r.Kind != trace.KindSample {
		return nil, nil
	}
	rows := make([]appRow, 0, len(r.Sample.Apps))
	for i := range r.Sample.Apps {
		a := &r.Sample.Apps[i]
		row := appRow{
			exportWindow: m.window(&r.Sample), PID: int64(a.PID), Comm: a.Comm, CPU: int64(a.CPU), Events: a.Events, Full: a.Full,
		}
		if a.Cgroup != "" {
			row.Cgroup = &a.Cgroup
		}
		if a.Waits != nil {
			returns := uint64(0)
			for _, n := range a.Waits {
				returns += n
			}
			row.Returns, row.Empty = &returns, &a.Waits[0]
		}
		if a.BusyPolls != nil {
			row.BusyPolls, row.BusyPackets = &a.BusyPolls.Polls, &a.BusyPolls.Packets
		}
		if a.Contexts != nil {
			contexts, prefer := int64(len(a.Contexts)), int64(0)
			for _, c := range a.Contexts {
				if c.Prefer {
					prefer++
				}
			}
			row.Contexts, row.Prefer = &contexts, &prefer
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (m rowMaker) decisions(r *trace.Record) ([]decisionRow, error) {
	if r.Kind != trace.KindJournal {
		return nil, nil
	}
	type settings struct {
		Defer   *uint32 `json:"defer_hard_irqs"`
		Flush   *int64  `json:"gro_flush_timeout_ns"`
		Suspend *int64  `json:"irq_suspend_timeout_ns"`
	}
	var e struct {
		At         int64    `json:"at_ns"`
		Queue      string   `json:"queue"`
		Policy     string   `json:"policy"`
		Purpose    string   `json:"purpose"`
		Verdict    string   `json:"verdict"`
		Guard      string   `json:"guard"`
		Why        string   `json:"why"`
		From       settings `json:"from"`
		To         settings `json:"to"`
		Propensity *float64 `json:"propensity"`
	}
	if err := json.Unmarshal(r.Entry, &e); err != nil {
		return nil, err
	}
	return []decisionRow{{
		Time: m.wall(time.Duration(e.At)), At: e.At, Queue: e.Queue, Policy: e.Policy, Purpose: e.Purpose, Verdict: e.Verdict,
		Guard: e.Guard, Why: e.Why, Propensity: e.Propensity,
		FromDefer: e.From.Defer, FromFlush: e.From.Flush, FromSuspend: e.From.Suspend,
		ToDefer: e.To.Defer, ToFlush: e.To.Flush, ToSuspend: e.To.Suspend,
	}}, nil
}

func nanoseconds(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	n := int64(*d)
	return &n
}

func countOf(h *model.Histogram) *uint64 {
	if h == nil {
		return nil
	}
	n := h.Count()
	return &n
}

func quantileNs(h *model.Histogram, q float64) *int64 { return nanoseconds(quantileOf(h, q)) }

// csvTime is how CSV has microseconds since 1970.
func csvTime(us int64) string { return time.UnixMicro(us).UTC().Format("2006-01-02T15:04:05.000000Z") }

// csvCell is a value of a row as CSV has it; null is empty.
func csvCell(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case uint64:
		return strconv.FormatUint(v, 10)
	case uint32:
		return strconv.FormatUint(uint64(v), 10)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	case *string:
		return csvPointer(v)
	case *uint64:
		return csvPointer(v)
	case *uint32:
		return csvPointer(v)
	case *int64:
		return csvPointer(v)
	case *float64:
		return csvPointer(v)
	}
	panic("a column of an export has a type without a form in CSV")
}

func csvPointer[T any](p *T) string {
	if p == nil {
		return ""
	}
	return csvCell(any(*p))
}
