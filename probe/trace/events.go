package trace

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"autotune/model"
)

// In a line of events, times are columns of differences: a poll's, a wait's and
// a request's from the one before it in its column (the first from the
// beginning of the span), a receive's from ready, and a send's from receive, or
// from ready where there is none.

// eventTables are the forms of the lists in a line of events.
type eventTables struct {
	polls    *table[model.PollEvent]
	waits    *table[model.WaitEvent]
	requests *table[model.RequestEvent]
	// last is the time that the next difference is from.
	last time.Duration
}

// difference is the column of a time that rows ascend by.
func difference[T any](last *time.Duration, name string, at func(*T) *time.Duration) column[T] {
	return column[T]{
		name: name, required: true,
		write: func(b []byte, row *T) []byte {
			d := *at(row) - *last
			*last = *at(row)
			return strconv.AppendInt(b, int64(d), 10)
		},
		read: func(d *decoder, row *T) {
			*last += time.Duration(d.scan.int())
			*at(row) = *last
		},
	}
}

func queueColumn[T any](at func(*T) *model.Queue) column[T] {
	return column[T]{
		name: "queue", required: true,
		write: func(b []byte, row *T) []byte { return appendQueueID(b, *at(row)) },
		read:  func(d *decoder, row *T) { *at(row) = d.queueID() },
	}
}

func newEventTables() *eventTables {
	t := new(eventTables)
	t.polls = newTable(
		difference(&t.last, "after_ns", func(e *model.PollEvent) *time.Duration { return &e.At }),
		queueColumn(func(e *model.PollEvent) *model.Queue { return &e.Queue }),
		number("work", func(e *model.PollEvent) *uint32 { return &e.Work }),
		column[model.PollEvent]{
			name: "loop", required: true,
			write: func(b []byte, e *model.PollEvent) []byte { return appendString(b, e.Loop.String()) },
			read: func(d *decoder, e *model.PollEvent) {
				loop, err := model.ParseLoop(d.scan.str())
				if err != nil && d.scan.err == nil {
					d.scan.fail("%v", err)
				}
				e.Loop = loop
			},
		},
	)
	t.waits = newTable(
		difference(&t.last, "after_ns", func(e *model.WaitEvent) *time.Duration { return &e.At }),
		column[model.WaitEvent]{
			name: "pid", required: true,
			write: func(b []byte, e *model.WaitEvent) []byte { return strconv.AppendInt(b, int64(e.PID), 10) },
			read:  func(d *decoder, e *model.WaitEvent) { e.PID = int(d.scan.int()) },
		},
		number("events", func(e *model.WaitEvent) *uint32 { return &e.Events }),
	)
	t.requests = newTable(
		difference(&t.last, "ready_after_ns", func(e *model.RequestEvent) *time.Duration { return &e.Ready }),
		queueColumn(func(e *model.RequestEvent) *model.Queue { return &e.Queue }),
		later("receive_after_ns", func(e *model.RequestEvent) (time.Duration, **time.Duration) { return e.Ready, &e.Receive }),
		later("send_after_ns", func(e *model.RequestEvent) (time.Duration, **time.Duration) {
			if e.Receive != nil {
				return *e.Receive, &e.Send
			}
			return e.Ready, &e.Send
		}),
	)
	return t
}

// later is the column of a time that may be unknown, as the difference from
// another one of its row, which is in a column before.
func later[T any](name string, at func(*T) (from time.Duration, to **time.Duration)) column[T] {
	return column[T]{
		name: name,
		write: func(b []byte, row *T) []byte {
			from, to := at(row)
			if *to == nil {
				return append(b, "null"...)
			}
			return strconv.AppendInt(b, int64(**to-from), 10)
		},
		read: func(d *decoder, row *T) {
			from, to := at(row)
			t := from + time.Duration(d.scan.int())
			*to = &t
		},
	}
}

// appendEvents appends e as one line, without the line feed.
func appendEvents(b []byte, e *model.Events) []byte {
	t := newEventTables()
	b = append(b, `{"kind":"events","from_ns":`...)
	b = strconv.AppendInt(b, int64(e.From), 10)
	b = append(b, `,"to_ns":`...)
	b = strconv.AppendInt(b, int64(e.To), 10)
	b = append(b, `,"lost_events":`...)
	b = strconv.AppendUint(b, e.Lost, 10)
	b = append(b, `,"polls":`...)
	t.last = e.From
	b = t.polls.append(b, e.Polls, new(stretch))
	b = append(b, `,"waits":`...)
	t.last = e.From
	b = t.waits.append(b, e.Waits, new(stretch))
	b = append(b, `,"requests":`...)
	t.last = e.From
	b = t.requests.append(b, e.Requests, new(stretch))
	return append(b, '}')
}

// events decodes a line of events, whose span comes before its lists.
func (d *decoder) events(line []byte) (model.Events, error) {
	d.scan = scanner{data: line}
	s := &d.scan
	t := newEventTables()
	var out model.Events
	var seen fields
	if s.open('{') {
		for first := true; ; first = false {
			key, ok := s.key(first)
			if !ok {
				break
			}
			t.last = out.From
			switch string(key) {
			case "from_ns":
				out.From, seen = time.Duration(s.int()), seen|1
			case "to_ns":
				out.To, seen = time.Duration(s.int()), seen|2
			case "lost_events":
				out.Lost, seen = s.uint(math.MaxUint64), seen|4
			case "polls", "waits", "requests":
				if seen&1 == 0 {
					s.fail("events before their span")
				}
				switch string(key) {
				case "polls":
					out.Polls = t.polls.read(d, 0)
				case "waits":
					out.Waits = t.waits.read(d, 0)
				default:
					out.Requests = t.requests.read(d, 0)
				}
			default:
				s.skip()
			}
		}
	}
	d.require(seen, 7, "from_ns", "to_ns", "lost_events")
	s.end()
	if s.err != nil {
		return model.Events{}, fmt.Errorf("decode events: %w: %w", ErrCorrupt, s.err)
	}
	return out, nil
}

// WriteEvents adds events. They follow the sample that their span ends in.
func (w *Writer) WriteEvents(e model.Events) error {
	if n := max(len(e.Polls), len(e.Waits), len(e.Requests)); n > model.MaxEvents {
		return fmt.Errorf("write %d events to trace, limit %d: %w", n, model.MaxEvents, ErrTooLarge)
	}
	return w.addLine(func(b []byte) []byte { return appendEvents(b, &e) })
}
