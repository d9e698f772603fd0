package trace

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"autotune/model"
)

// appendSample appends s as one line, without the line feed. It is written out
// by hand because a sample of 64 queues has some 300 histograms, and recording
// must not cost more than the probes that fill them.
func appendSample(b []byte, s *model.Sample) []byte {
	b = append(b, `{"kind":"sample","at_ns":`...)
	b = strconv.AppendInt(b, int64(s.At), 10)
	b = append(b, `,"span_ns":`...)
	b = strconv.AppendInt(b, int64(s.Span), 10)
	b = append(b, `,"queues":`...)
	b = appendList(b, s.Queues, appendQueue)
	b = append(b, `,"cpus":`...)
	b = appendList(b, s.CPUs, appendCPU)
	b = append(b, `,"apps":`...)
	b = appendList(b, s.Apps, appendApp)
	b = append(b, `,"latency":`...)
	if s.Latency == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"source":`...)
		b = appendString(b, s.Latency.Source)
		b = append(b, `,"histogram":`...)
		b = appendRuns(b, s.Latency.Histogram.Counts[:])
		b = append(b, '}')
	}
	b = append(b, `,"lost_events":`...)
	b = strconv.AppendUint(b, s.Lost, 10)
	b = append(b, `,"active":`...)
	b = appendByQueue(b, s.Active, appendSettings)
	b = append(b, `,"napi_ids":`...)
	b = appendByQueue(b, s.NAPIIDs, appendNAPIID)
	b = append(b, `,"absent":`...)
	b = appendByQueue(b, s.Absent, appendReason)
	b = append(b, `,"probe":`...)
	if s.Probe == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"cost_ns_per_s":`...)
		b = appendDuration(b, s.Probe.Cost)
		b = append(b, `,"budget_ns_per_s":`...)
		b = strconv.AppendInt(b, int64(s.Probe.Budget), 10)
		b = append(b, `,"poll_every":`...)
		b = strconv.AppendUint(b, uint64(s.Probe.PollEvery), 10)
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendList keeps nil apart from empty: null is "not observed".
func appendList[T any](b []byte, list []T, item func([]byte, *T) []byte) []byte {
	if list == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = item(b, &list[i])
	}
	return append(b, ']')
}

func appendQueue(b []byte, q *model.QueueSample) []byte {
	b = append(b, `{"queue":`...)
	b = appendQueueID(b, q.Queue)
	b = append(b, `,"napi_id":`...)
	b = strconv.AppendUint(b, uint64(q.NAPIID), 10)
	b = append(b, `,"softirq":`...)
	b = appendPolls(b, &q.Softirq)
	b = append(b, `,"thread":`...)
	b = appendPolls(b, &q.Thread)
	b = append(b, `,"busy":`...)
	b = appendPolls(b, &q.Busy)
	b = append(b, `,"work":`...)
	b = appendRuns(b, q.Work[:])
	b = appendLoops(b, q)
	b = append(b, `,"timer":`...)
	if q.Timer == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"arms":`...)
		b = strconv.AppendUint(b, q.Timer.Arms, 10)
		b = append(b, `,"fires":`...)
		b = strconv.AppendUint(b, q.Timer.Fires, 10)
		b = append(b, '}')
	}
	b = append(b, `,"thread_time_ns":`...)
	b = appendDuration(b, q.ThreadTime)
	b = append(b, `,"ring_wait":`...)
	b = appendHistogram(b, q.RingWait)
	b = append(b, `,"socket_wait":`...)
	b = appendHistogram(b, q.SocketWait)
	b = append(b, `,"service":`...)
	b = appendHistogram(b, q.Service)
	b = append(b, `,"delay":`...)
	b = appendHistogram(b, q.Delay)
	b = append(b, `,"sample_every":`...)
	b = strconv.AppendUint(b, uint64(q.SampleEvery), 10)
	return append(b, '}')
}

// appendLoops appends what is known of how the loops worked together.
func appendLoops(b []byte, q *model.QueueSample) []byte {
	b = append(b, `,"timer_softirq":`...)
	b = appendPolls(b, q.TimerSoftirq)
	b = append(b, `,"timer_thread":`...)
	b = appendPolls(b, q.TimerThread)
	b = append(b, `,"netpoll":`...)
	b = appendCount(b, q.Netpoll)
	b = append(b, `,"takeovers":`...)
	if t := q.Takeovers; t == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"interrupt_to_timer":`...)
		b = strconv.AppendUint(b, t.InterruptToTimer, 10)
		b = append(b, `,"interrupt_to_application":`...)
		b = strconv.AppendUint(b, t.InterruptToApplication, 10)
		b = append(b, `,"timer_to_interrupt":`...)
		b = strconv.AppendUint(b, t.TimerToInterrupt, 10)
		b = append(b, `,"timer_to_application":`...)
		b = strconv.AppendUint(b, t.TimerToApplication, 10)
		b = append(b, `,"application_to_interrupt":`...)
		b = strconv.AppendUint(b, t.ApplicationToInterrupt, 10)
		b = append(b, `,"application_to_timer":`...)
		b = strconv.AppendUint(b, t.ApplicationToTimer, 10)
		b = append(b, '}')
	}
	b = append(b, `,"unmasked":`...)
	b = appendCount(b, q.Unmasked)
	b = append(b, `,"interrupts":`...)
	b = appendCount(b, q.Interrupts)
	b = append(b, `,"softirq_time_ns":`...)
	b = appendDuration(b, q.SoftirqTime)
	b = append(b, `,"suspension":`...)
	p := q.Suspension
	if p == nil {
		return append(b, "null"...)
	}
	b = append(b, `{"started":`...)
	b = strconv.AppendUint(b, p.Started, 10)
	b = append(b, `,"resumed":`...)
	b = strconv.AppendUint(b, p.Resumed, 10)
	b = append(b, `,"expired":`...)
	b = strconv.AppendUint(b, p.Expired, 10)
	b = append(b, `,"flushed":`...)
	b = strconv.AppendUint(b, p.Flushed, 10)
	b = append(b, `,"length":`...)
	b = appendRuns(b, p.Length.Counts[:])
	return append(b, '}')
}

func appendCount(b []byte, n *uint64) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	return strconv.AppendUint(b, *n, 10)
}

func appendPolls(b []byte, p *model.PollCounts) []byte {
	if p == nil {
		return append(b, "null"...)
	}
	b = append(b, `{"polls":`...)
	b = strconv.AppendUint(b, p.Polls, 10)
	b = append(b, `,"packets":`...)
	b = strconv.AppendUint(b, p.Packets, 10)
	b = append(b, `,"empty":`...)
	b = strconv.AppendUint(b, p.Empty, 10)
	b = append(b, `,"full":`...)
	b = strconv.AppendUint(b, p.Full, 10)
	return append(b, '}')
}

func appendCPU(b []byte, c *model.CPUSample) []byte {
	b = append(b, `{"cpu":`...)
	b = strconv.AppendInt(b, int64(c.CPU), 10)
	b = append(b, `,"net_rx_ns":`...)
	b = appendDuration(b, c.NetRX)
	b = append(b, `,"net_rx_idle_ns":`...)
	b = appendDuration(b, c.NetRXIdle)
	b = append(b, `,"hard_irqs":`...)
	b = appendCount(b, c.HardIRQs)
	b = append(b, `,"hard_irq_ns":`...)
	b = appendDuration(b, c.HardIRQ)
	b = append(b, `,"hard_irq_idle_ns":`...)
	b = appendDuration(b, c.HardIRQIdle)
	b = append(b, `,"ksoftirqd_ns":`...)
	b = appendDuration(b, c.Ksoftirqd)
	b = append(b, `,"transmit_only":`...)
	b = appendCount(b, c.TransmitOnly)
	b = append(b, `,"busy_ns":`...)
	b = strconv.AppendInt(b, int64(c.Busy), 10)
	b = append(b, `,"steal_ns":`...)
	b = strconv.AppendInt(b, int64(c.Steal), 10)
	b = append(b, `,"squeezed":`...)
	b = strconv.AppendUint(b, c.Squeezed, 10)
	return append(b, '}')
}

func appendApp(b []byte, a *model.AppSample) []byte {
	b = append(b, `{"pid":`...)
	b = strconv.AppendInt(b, int64(a.PID), 10)
	b = append(b, `,"comm":`...)
	b = appendString(b, a.Comm)
	b = append(b, `,"cpu_ns":`...)
	b = strconv.AppendInt(b, int64(a.CPU), 10)
	b = append(b, `,"waits":`...)
	if a.Waits == nil {
		b = append(b, "null"...)
	} else {
		b = appendRuns(b, a.Waits[:])
	}
	b = append(b, `,"events":`...)
	b = appendCount(b, a.Events)
	b = append(b, `,"full":`...)
	b = appendCount(b, a.Full)
	b = append(b, `,"busy_polls":`...)
	if a.BusyPolls == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"polls":`...)
		b = strconv.AppendUint(b, a.BusyPolls.Polls, 10)
		b = append(b, `,"packets":`...)
		b = strconv.AppendUint(b, a.BusyPolls.Packets, 10)
		b = append(b, '}')
	}
	b = append(b, `,"cgroup":`...)
	b = appendString(b, a.Cgroup)
	b = append(b, `,"selected":`...)
	b = strconv.AppendBool(b, a.Selected)
	b = append(b, `,"contexts":`...)
	b = appendList(b, a.Contexts, appendContext)
	return append(b, '}')
}

func appendContext(b []byte, c *model.EpollContext) []byte {
	b = append(b, `{"fd":`...)
	b = strconv.AppendInt(b, int64(c.FD), 10)
	b = append(b, `,"opaque":`...)
	b = strconv.AppendBool(b, c.Opaque)
	b = append(b, `,"busy_poll_ns":`...)
	b = strconv.AppendInt(b, int64(c.BusyPoll), 10)
	b = append(b, `,"busy_poll_budget":`...)
	b = strconv.AppendUint(b, uint64(c.Budget), 10)
	b = append(b, `,"prefer_busy_poll":`...)
	b = strconv.AppendBool(b, c.Prefer)
	b = append(b, `,"napi_ids":`...)
	b = appendList(b, c.NAPIIDs, func(b []byte, id *uint32) []byte {
		return strconv.AppendUint(b, uint64(*id), 10)
	})
	b = append(b, `,"more":`...)
	b = strconv.AppendBool(b, c.MoreNAPIs)
	return append(b, '}')
}

// appendByQueue appends a map as a list of objects that have the queue for
// their first field; item appends the others. A list with one shape of object
// is what tabular tools read best.
func appendByQueue[M ~map[model.Queue]V, V any](b []byte, m M, item func([]byte, V) []byte) []byte {
	if m == nil {
		return append(b, "null"...)
	}
	b = append(b, '[')
	for i, q := range sortedQueues(m) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"queue":`...)
		b = appendQueueID(b, q)
		b = item(b, m[q])
		b = append(b, '}')
	}
	return append(b, ']')
}

func appendSettings(b []byte, s model.Settings) []byte {
	b = append(b, `,"defer_hard_irqs":`...)
	b = strconv.AppendUint(b, uint64(s.DeferHardIRQs), 10)
	b = append(b, `,"gro_flush_timeout_ns":`...)
	b = strconv.AppendInt(b, int64(s.GROFlushTimeout), 10)
	b = append(b, `,"irq_suspend_timeout_ns":`...)
	b = strconv.AppendInt(b, int64(s.IRQSuspendTimeout), 10)
	if s.BusyPoll == (model.BusyPoll{}) {
		return append(b, `,"busy_poll_ns":null,"busy_poll_budget":null,"prefer_busy_poll":null`...)
	}
	b = append(b, `,"busy_poll_ns":`...)
	b = strconv.AppendInt(b, int64(s.BusyPoll.Span), 10)
	b = append(b, `,"busy_poll_budget":`...)
	b = strconv.AppendUint(b, uint64(s.BusyPoll.Budget), 10)
	b = append(b, `,"prefer_busy_poll":`...)
	return strconv.AppendBool(b, s.BusyPoll.Prefer)
}

func appendNAPIID(b []byte, id uint32) []byte {
	b = append(b, `,"napi_id":`...)
	return strconv.AppendUint(b, uint64(id), 10)
}

func appendReason(b []byte, reason string) []byte {
	b = append(b, `,"reason":`...)
	return appendString(b, reason)
}

// sortedQueues makes the order of a map's lines the same in every recording.
func sortedQueues[M ~map[model.Queue]V, V any](m M) []model.Queue {
	queues := make([]model.Queue, 0, len(m))
	for q := range m {
		queues = append(queues, q)
	}
	slices.SortFunc(queues, model.Queue.Compare)
	return queues
}

func appendQueueID(b []byte, q model.Queue) []byte {
	b = append(b, '"')
	b = strconv.AppendUint(b, q.Netns, 10)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(q.Ifindex), 10)
	b = append(b, ':')
	b = strconv.AppendInt(b, int64(q.Index), 10)
	return append(b, '"')
}

func appendDuration(b []byte, d *time.Duration) []byte {
	if d == nil {
		return append(b, "null"...)
	}
	return strconv.AppendInt(b, int64(*d), 10)
}

func appendHistogram(b []byte, h *model.Histogram) []byte {
	if h == nil {
		return append(b, "null"...)
	}
	return appendRuns(b, h.Counts[:])
}

// runGap is how many empty buckets in a row end a run: fewer are shorter as
// zeros than as the start of a run.
const runGap = 3

// appendRuns appends counts as runs of [first index, count, count, ...].
func appendRuns(b []byte, counts []uint64) []byte {
	b = append(b, '[')
	last := -1
	for i, n := range counts {
		if n == 0 {
			continue
		}
		switch {
		case last < 0:
			b = append(b, '[')
			b = strconv.AppendInt(b, int64(i), 10)
		case i-last > runGap:
			b = append(b, "],["...)
			b = strconv.AppendInt(b, int64(i), 10)
		default:
			for range i - last - 1 {
				b = append(b, ",0"...)
			}
		}
		b = append(b, ',')
		b = strconv.AppendUint(b, n, 10)
		last = i
	}
	if last >= 0 {
		b = append(b, ']')
	}
	return append(b, ']')
}

func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			// A string always marshals: invalid UTF-8 is replaced.
			quoted, _ := json.Marshal(s)
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}
