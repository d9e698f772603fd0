package main

import (
	"autotune/model"
	"autotune/probe/trace"
)

// The tables of single events. Times are since boot, and time is that of at_ns.

// pollRow is one poll.
type pollRow struct {
	Time *int64 `parquet:"time,optional,timestamp(microsecond)"`
	// At is the poll's end.
	At int64 `parquet:"at_ns"`
	exportQueue
	Packets uint64 `parquet:"packets"`
	// Loop is who polled: softirq, thread or application, or softirq_timer or
	// thread_timer where the NAPI's timer started it.
	Loop string `parquet:"loop"`
}

// waitRow is one return of epoll_wait.
type waitRow struct {
	Time   *int64 `parquet:"time,optional,timestamp(microsecond)"`
	At     int64  `parquet:"at_ns"`
	PID    int64  `parquet:"pid"`
	Events uint64 `parquet:"events"`
}

// requestRow is one request on a socket that was followed.
type requestRow struct {
	Time *int64 `parquet:"time,optional,timestamp(microsecond)"`
	// At is when it was ready.
	At int64 `parquet:"at_ns"`
	exportQueue
	Receive *int64 `parquet:"receive_at_ns,optional"`
	Send    *int64 `parquet:"send_at_ns,optional"`
}

// eventSpanRow is one span in which single events were recorded.
type eventSpanRow struct {
	Time     *int64  `parquet:"time,optional,timestamp(microsecond)"`
	At       int64   `parquet:"at_ns"`
	Span     int64   `parquet:"span_ns"`
	Polls    *uint64 `parquet:"polls,optional"`
	Waits    *uint64 `parquet:"waits,optional"`
	Requests *uint64 `parquet:"requests,optional"`
	Lost     uint64  `parquet:"lost_events"`
}

func (m rowMaker) polls(r *trace.Record) ([]pollRow, error) {
	if r.Kind != trace.KindEvents {
		return nil, nil
	}
	rows := make([]pollRow, 0, len(r.Events.Polls))
	for _, e := range r.Events.Polls {
		rows = append(rows, pollRow{m.wall(e.At), int64(e.At), m.queue(e.Queue), uint64(e.Work), e.Loop.String()})
	}
	return rows, nil
}

func (m rowMaker) waits(r *trace.Record) ([]waitRow, error) {
	if r.Kind != trace.KindEvents {
		return nil, nil
	}
	rows := make([]waitRow, 0, len(r.Events.Waits))
	for _, e := range r.Events.Waits {
		rows = append(rows, waitRow{m.wall(e.At), int64(e.At), int64(e.PID), uint64(e.Events)})
	}
	return rows, nil
}

func (m rowMaker) requests(r *trace.Record) ([]requestRow, error) {
	if r.Kind != trace.KindEvents {
		return nil, nil
	}
	rows := make([]requestRow, 0, len(r.Events.Requests))
	for _, e := range r.Events.Requests {
		rows = append(rows, requestRow{m.wall(e.Ready), int64(e.Ready), m.queue(e.Queue), nanoseconds(e.Receive), nanoseconds(e.Send)})
	}
	return rows, nil
}

func (m rowMaker) eventSpans(r *trace.Record) ([]eventSpanRow, error) {
	if r.Kind != trace.KindEvents {
		return nil, nil
	}
	e := r.Events
	return []eventSpanRow{{
		Time: m.wall(e.To), At: int64(e.To), Span: int64(e.To - e.From),
		Polls: observedCount(e.Polls), Waits: observedCount(e.Waits), Requests: observedCount(e.Requests), Lost: e.Lost,
	}}, nil
}

// observedCount is the number of events of a kind; nil where it was not observed.
func observedCount[E model.PollEvent | model.WaitEvent | model.RequestEvent](list []E) *uint64 {
	if list == nil {
		return nil
	}
	n := uint64(len(list))
	return &n
}
