package counterfactual

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"time"

	"autotune/model"
)

// observed is what the last sample tells of the events that follow it.
type observed struct {
	window   int
	from, to time.Duration
	spoilt   bool
	queues   []observedQueue
}

type observedQueue struct {
	queue    model.Queue
	track    int
	every    uint32
	settings model.Settings
	ringWait *model.Histogram
	// regime is nil where the window is of none.
	regime *regime
}

// AddEvents takes single events of the window that was added last, in their
// order. It keeps the slices of e until the next sample is added.
func (r *Recording) AddEvents(e *model.Events) { r.events = append(r.events, *e) }

// Events tells of how many windows single events were used, and of how many not,
// because some were lost or the window was disturbed.
func (r *Recording) Events() (used, unused int) {
	r.settle()
	return r.eventWindows - r.brokenEvents, r.brokenEvents
}

// edge is how much of a window at either end may lack events.
const edge = time.Millisecond

// settle rebuilds the arrivals of the last window from its events, once.
func (r *Recording) settle() {
	if len(r.events) == 0 {
		return
	}
	events := r.events
	r.events = nil
	ordinal := r.eventWindows
	r.eventWindows++
	w := &r.last
	whole := events[0].From <= w.from+edge && events[len(events)-1].To >= w.to-edge
	for i := range events {
		whole = whole && events[i].Lost == 0 && (i == 0 || events[i].From <= events[i-1].To+edge)
	}
	if w.spoilt || !whole {
		r.brokenEvents++
		return
	}
	queues := byQueue(events)
	for i := range w.queues {
		o := &w.queues[i]
		e := queues[o.queue]
		if e == nil {
			continue
		}
		r.concurrent = max(r.concurrent, e.concurrent()*int(max(o.every, 1)))
		r.services.add(e, w.to-w.from)
		if ordinal%max(r.stride, 1) != 0 {
			continue
		}
		at, ok := o.arrivals(e, w.from, w.to, r.PacketsPerRequest(), rand.New(rand.NewPCG(uint64(w.window), uint64(o.track))))
		if !ok {
			continue
		}
		p := newPattern(w.to-w.from, at)
		p.window, p.ordinal, p.regime = w.window, ordinal, o.regime
		r.keepPattern(o.track, p)
	}
}

// queueEvents are the events of one queue in one window.
type queueEvents struct {
	polls []model.PollEvent
	// requests ascend by the time at which they were ready; sees tells whether
	// any would have been observed.
	requests []model.RequestEvent
	sees     bool
}

func byQueue(events []model.Events) map[model.Queue]*queueEvents {
	out := make(map[model.Queue]*queueEvents)
	of := func(q model.Queue) *queueEvents {
		e := out[q]
		if e == nil {
			e = new(queueEvents)
			out[q] = e
		}
		return e
	}
	sees := false
	for i := range events {
		sees = sees || events[i].Requests != nil
		for _, p := range events[i].Polls {
			e := of(p.Queue)
			e.polls = append(e.polls, p)
		}
		for _, q := range events[i].Requests {
			e := of(q.Queue)
			e.requests = append(e.requests, q)
		}
	}
	for _, e := range out {
		e.sees = sees
		// A window in several spans has its requests in the order of their
		// ends.
		slices.SortStableFunc(e.requests, func(a, b model.RequestEvent) int { return cmp.Compare(a.Ready, b.Ready) })
	}
	return out
}

// concurrent is the largest number of requests that were under way at once.
func (e *queueEvents) concurrent() int {
	ends := make([]time.Duration, len(e.requests))
	for i := range e.requests {
		ends[i] = e.requests[i].End()
	}
	slices.Sort(ends)
	most, ended := 0, 0
	for i := range e.requests {
		for ended < len(ends) && ends[ended] <= e.requests[i].Ready {
			ended++
		}
		most = max(most, i+1-ended)
	}
	return most
}
