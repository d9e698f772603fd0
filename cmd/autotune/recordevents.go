package main

import (
	"errors"
	"fmt"
	"time"

	"autotune/model"
	"autotune/probe"
)

// eventFlags say when single events are recorded.
type eventFlags struct {
	Events       bool           `help:"Record single polls, returns of epoll_wait and requests as well, in some of the windows. The epoll part slows every system call of the host a little."`
	EventsWindow *time.Duration `help:"How long events are recorded at a time, rounded up to whole windows (1s)." name:"events-window" placeholder:"TIME"`
	EventsEvery  *time.Duration `help:"From the beginning of one such time to that of the next (10s); no more than --events-window records them all the time." name:"events-every" placeholder:"TIME"`
}

func (f eventFlags) check() error {
	switch {
	case !f.Events && (f.EventsWindow != nil || f.EventsEvery != nil):
		return errors.New("--events-window and --events-every are about --events, which is missing")
	case f.EventsWindow != nil && *f.EventsWindow <= 0:
		return fmt.Errorf("--events-window %v: above 0", *f.EventsWindow)
	case f.EventsEvery != nil && *f.EventsEvery <= 0:
		return fmt.Errorf("--events-every %v: above 0", *f.EventsEvery)
	}
	return nil
}

// The defaults of the flags.
const (
	defaultEventsWindow = time.Second
	defaultEventsEvery  = 10 * time.Second
)

// options is nil where no events are recorded.
func (f eventFlags) options() *probe.EventOptions {
	if !f.Events {
		return nil
	}
	o := &probe.EventOptions{Window: defaultEventsWindow, Every: defaultEventsEvery}
	if f.EventsWindow != nil {
		o.Window = *f.EventsWindow
	}
	if f.EventsEvery != nil {
		o.Every = *f.EventsEvery
	}
	return o
}

// recordedEvents counts what was recorded one by one.
type recordedEvents struct {
	// Span is the time in which events were recorded.
	Span     time.Duration `json:"span_ns"`
	Polls    uint64        `json:"polls"`
	Waits    uint64        `json:"waits"`
	Requests uint64        `json:"requests"`
	// Lost did not fit into the buffer.
	Lost uint64 `json:"lost"`
}

// count adds events, and returns them.
func (r *recordedEvents) count(events []model.Events) []model.Events {
	for i := range events {
		e := &events[i]
		r.Span += e.To - e.From
		r.Polls += uint64(len(e.Polls))
		r.Waits += uint64(len(e.Waits))
		r.Requests += uint64(len(e.Requests))
		r.Lost += e.Lost
	}
	return events
}

func (r *recordedEvents) String() string {
	return fmt.Sprintf("single events of %v: %s, %s of epoll_wait, %s; %d did not fit into the buffer",
		r.Span.Round(time.Millisecond), model.Count(r.Polls, "poll"), model.Count(r.Waits, "return"), model.Count(r.Requests, "request"), r.Lost)
}
