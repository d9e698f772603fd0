package trace

import (
	"context"
	"errors"
	"io"
	"time"

	"autotune/model"
)

// Summary is what a trace holds, found by reading all of it.
type Summary struct {
	Header Header
	Stats  Stats
	// Begin is when the window of the first sample began, First and Last are
	// the times of the first and the last sample, since boot.
	Begin, First, Last time.Duration
	// Span is the sum of the spans of all samples.
	Span time.Duration
	// Queues are those that samples tell of, in their order.
	Queues []QueueSummary
	// LostEvents counts what the probes dropped.
	LostEvents uint64
	// Applies and Entries count the apply and journal lines, Conditions the
	// changes of conditions.
	Applies, Entries, Conditions uint64
	// Final are the conditions at the end.
	Final Conditions
	// Events are the single events that were recorded.
	Events EventSummary
	// Processes counts the processes that received on a queue.
	Processes int
	// Damage is what ended the reading before the end; nil where nothing did.
	Damage error
}

// EventSummary counts the single events of a [Summary].
type EventSummary struct {
	// Windows had single events recorded, which lasted Span.
	Windows uint64
	Span    time.Duration
	// Polls, Waits and Requests were recorded, Lost were not.
	Polls, Waits, Requests, Lost uint64
}

func (s *EventSummary) add(e *model.Events, first bool) {
	if first {
		s.Windows++
	}
	s.Span += e.To - e.From
	s.Polls += uint64(len(e.Polls))
	s.Waits += uint64(len(e.Waits))
	s.Requests += uint64(len(e.Requests))
	s.Lost += e.Lost
}

// QueueSummary is one queue of a [Summary].
type QueueSummary struct {
	Queue model.Queue
	// Samples tell of the queue.
	Samples uint64
	Polls   model.PollCounts
	// Delays counts the requests whose delay was measured.
	Delays uint64
	// Settings counts the changes of settings, after the first.
	Changes uint64
}

// Summarize reads all that is left of r. Progress, if not nil, is called after
// every sample. The end of ctx is a Damage.
func Summarize(ctx context.Context, r *Reader, progress func(Stats)) Summary {
	s := Summary{Header: r.Header(), Final: r.Header().Conditions}
	queues := map[model.Queue]*QueueSummary{}
	active := map[model.Queue]model.Settings{}
	processes := map[int]bool{}
	first := true // of the events of a window
	for {
		record, err := r.Record()
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				s.Damage = err
			}
			break
		}
		switch record.Kind {
		case KindEvents:
			s.Events.add(record.Events, first)
			first = false
		case KindSample:
			first = true
			s.add(&record.Sample, queues, active)
			for i := range record.Sample.Apps {
				processes[record.Sample.Apps[i].PID] = true
			}
			if progress != nil {
				progress(r.stats)
			}
		case KindApply:
			s.Applies++
		case KindJournal:
			s.Entries++
		case KindConditions:
			s.Conditions++
			s.Final = *record.Conditions
		default:
		}
	}
	for _, q := range sortedQueues(queues) {
		s.Queues = append(s.Queues, *queues[q])
	}
	s.Processes = len(processes)
	s.Stats = r.Stats()
	return s
}

func (s *Summary) add(sample *model.Sample, queues map[model.Queue]*QueueSummary, active map[model.Queue]model.Settings) {
	if s.Span == 0 {
		s.Begin, s.First = sample.At-sample.Span, sample.At
	}
	s.Last = sample.At
	s.Span += sample.Span
	s.LostEvents += sample.Lost
	of := func(queue model.Queue) *QueueSummary {
		q := queues[queue]
		if q == nil {
			q = &QueueSummary{Queue: queue}
			queues[queue] = q
		}
		return q
	}
	for i := range sample.Queues {
		observed := &sample.Queues[i]
		q := of(observed.Queue)
		q.Samples++
		q.Polls = q.Polls.Plus(observed.Polls())
		q.Delays += observed.Delay.Count()
	}
	for queue, settings := range sample.Active {
		before, known := active[queue]
		if known && before != settings {
			of(queue).Changes++
		}
		active[queue] = settings
	}
}
