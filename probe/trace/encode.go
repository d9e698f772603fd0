package trace

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"autotune/model"
)

// encoder turns samples into lines.
type encoder struct {
	tables tables
	// active and napis are reused from sample to sample.
	active []keyed[model.Settings]
	napis  []keyed[uint32]
	// cuts are positions in the text at which another kind of text begins, so
	// that the codes of one suit the other badly.
	cuts []int
}

// leastBlock is how much text is worth codes of its own, which take some 100
// bytes.
const leastBlock = 4 << 10

func newEncoder() *encoder { return &encoder{tables: newTables()} }

// append appends s as one line, without the line feed. It is written out by
// hand because a sample of 64 queues has some 300 histograms, and recording
// must not cost more than the probes that fill them.
func (e *encoder) append(b []byte, s *model.Sample) []byte {
	b = append(b, `{"kind":"sample","at_ns":`...)
	b = strconv.AppendInt(b, int64(s.At), 10)
	b = append(b, `,"span_ns":`...)
	b = strconv.AppendInt(b, int64(s.Span), 10)
	b = append(b, `,"queues":`...)
	var histograms stretch
	b = e.tables.queues.append(b, s.Queues, &histograms)
	if histograms.end-histograms.begin >= leastBlock {
		e.cuts = append(e.cuts, histograms.begin, histograms.end)
	}
	b = append(b, `,"cpus":`...)
	b = e.tables.cpus.append(b, s.CPUs, new(stretch))
	b = append(b, `,"apps":`...)
	b = appendList(b, s.Apps, appendApp)
	b = append(b, `,"latency":`...)
	if s.Latency == nil {
		b = append(b, "null"...)
	} else {
		b = append(b, `{"source":`...)
		b = appendString(b, s.Latency.Source)
		b = append(b, `,"histogram":`...)
		b = appendPacked(b, s.Latency.Histogram.Counts[:])
		b = append(b, '}')
	}
	b = append(b, `,"lost_events":`...)
	b = strconv.AppendUint(b, s.Lost, 10)
	b = append(b, `,"apps_unknown":`...)
	b = strconv.AppendUint(b, s.AppsUnknown, 10)
	b = append(b, `,"active":`...)
	e.active = keyedRows(e.active, s.Active)
	b = e.tables.active.append(b, e.active, new(stretch))
	b = append(b, `,"napi_ids":`...)
	e.napis = keyedRows(e.napis, s.NAPIIDs)
	b = e.tables.napis.append(b, e.napis, new(stretch))
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

// fits reports whether a reader takes as many rows.
func fits(s *model.Sample) bool {
	return max(len(s.Queues), len(s.CPUs), len(s.Active), len(s.NAPIIDs)) <= maxRows
}

// keyedRows lists a map in ascending order of queues, into rows where it has
// room; nil stays nil.
func keyedRows[M ~map[model.Queue]V, V any](rows []keyed[V], m M) []keyed[V] {
	if m == nil {
		return nil
	}
	rows = slices.Grow(rows[:0], max(1, len(m)))
	for q, v := range m {
		rows = append(rows, keyed[V]{queue: q, value: v})
	}
	slices.SortFunc(rows, func(a, b keyed[V]) int { return a.queue.Compare(b.queue) })
	return rows
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

func appendCount(b []byte, n *uint64) []byte {
	if n == nil {
		return append(b, "null"...)
	}
	return strconv.AppendUint(b, *n, 10)
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
		b = appendPacked(b, a.Waits[:])
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
