package model

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// MaxEvents is how many events of a kind one [Events] holds at most: a source
// that sees more hands them over in several.
const MaxEvents = 1 << 14

// Events are what happened one by one during one span of time, where a sample
// only counts. They are recorded in bounded spans with spans without in between,
// because they cost more than anything else that is observed.
type Events struct {
	// From and To bound the span, since boot (CLOCK_BOOTTIME for live sources).
	From, To time.Duration
	// Polls, Waits and Requests ascend by their time; nil where that kind was
	// not observed. A request is of the span that it ended in, so it may have
	// been ready before.
	Polls    []PollEvent
	Waits    []WaitEvent
	Requests []RequestEvent
	// Lost counts the events that the probes dropped: arrivals and service
	// times cannot be rebuilt across a loss. Of several spans that make up a
	// window, the last one has it for all.
	Lost uint64
}

// End is when the request was over.
func (e *RequestEvent) End() time.Duration {
	switch {
	case e.Send != nil:
		return *e.Send
	case e.Receive != nil:
		return *e.Receive
	}
	return e.Ready
}

// Split returns the events in as many adjoining spans as it takes for none to
// have more than most of a kind, in their order. What was lost is told in the
// last.
func (e Events) Split(most int) []Events {
	if max(len(e.Polls), len(e.Waits), len(e.Requests)) <= most || e.To-e.From < 2 {
		return []Events{e}
	}
	middle := e.From + (e.To-e.From)/2
	first, last := Events{From: e.From, To: middle}, Events{From: middle, To: e.To, Lost: e.Lost}
	polls, _ := slices.BinarySearchFunc(e.Polls, middle+1, func(p PollEvent, at time.Duration) int { return cmp.Compare(p.At, at) })
	waits, _ := slices.BinarySearchFunc(e.Waits, middle+1, func(w WaitEvent, at time.Duration) int { return cmp.Compare(w.At, at) })
	first.Polls, last.Polls = e.Polls[:polls:polls], e.Polls[polls:]
	first.Waits, last.Waits = e.Waits[:waits:waits], e.Waits[waits:]
	if e.Requests != nil {
		first.Requests, last.Requests = []RequestEvent{}, []RequestEvent{}
	}
	for _, r := range e.Requests {
		if r.End() <= middle {
			first.Requests = append(first.Requests, r)
		} else {
			last.Requests = append(last.Requests, r)
		}
	}
	return append(first.Split(most), last.Split(most)...)
}

// PollEvent is one poll of a NAPI instance.
type PollEvent struct {
	// At is the poll's end.
	At    time.Duration
	Queue Queue
	// Work is the number of packets that it processed.
	Work uint32
	Loop Loop
}

// WaitEvent is one return of epoll_wait.
type WaitEvent struct {
	At  time.Duration
	PID int
	// Events is the number of events returned; 0 for a timeout.
	Events uint32
}

// RequestEvent is one request on a followed socket.
type RequestEvent struct {
	// Ready is when data was ready on the socket.
	Ready time.Duration
	Queue Queue
	// Receive is when the application read it, and Send when it next sent on
	// the socket; nil where that was not seen.
	Receive, Send *time.Duration
}

// Loop is who ran a poll, and what started it.
type Loop uint8

// The loops. Softirq and thread polls are told apart by what started them only
// where timers are observed.
const (
	LoopSoftirq Loop = iota
	LoopThread
	LoopApplication
	LoopSoftirqTimer
	LoopThreadTimer
)

// allLoops are the loops that there are.
func allLoops() []Loop {
	return []Loop{LoopSoftirq, LoopThread, LoopApplication, LoopSoftirqTimer, LoopThreadTimer}
}

// String returns the loop's name in traces.
func (l Loop) String() string {
	switch l {
	case LoopSoftirq:
		return "softirq"
	case LoopThread:
		return "thread"
	case LoopApplication:
		return "application"
	case LoopSoftirqTimer:
		return "softirq_timer"
	case LoopThreadTimer:
		return "thread_timer"
	}
	return fmt.Sprintf("Loop(%d)", uint8(l))
}

// ParseLoop reads what [Loop.String] returns.
func ParseLoop(name string) (Loop, error) {
	for _, l := range allLoops() {
		if l.String() == name {
			return l, nil
		}
	}
	return 0, fmt.Errorf("%q is not a loop", name)
}
