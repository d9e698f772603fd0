package probe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"autotune/model"
)

const (
	// defaultRing holds 130,000 polls and waits, or 87,000 requests.
	defaultRing = 4 << 20
	// lookEvery is how often the ring is emptied while events come: nobody is
	// woken for them.
	lookEvery = 50 * time.Millisecond
	// maxTaken bounds the memory of one window: events of a kind beyond it are
	// lost.
	maxTaken = 16 * model.MaxEvents
	// A program may still be about to tell of a poll that a reading has, and the
	// host of a virtual machine may hold it up there.
	straggling    = 50 * time.Microsecond
	maxStraggling = 20 * time.Millisecond
)

// EventOptions say when single events are taken. They are taken during whole
// windows of the source, so that their sums are those of the samples.
type EventOptions struct {
	// Window is how long they are taken at a time; the zero value and less than
	// a window of the source mean one of these.
	Window time.Duration
	// Every is from the beginning of one such time to that of the next; the
	// zero value, and less than Window, take them all the time.
	Every time.Duration
	// Buffer is how many bytes of events the kernel keeps until they are
	// fetched, every 50 ms while [Source.Next] waits; rounded up to a power of
	// two and to a page. Zero means 4 MiB, and 1 GiB is the limit.
	Buffer int
}

func (o EventOptions) withDefaults() (EventOptions, error) {
	if o.Window < 0 || o.Every < 0 || o.Buffer < 0 || o.Buffer > 1<<30 {
		return o, fmt.Errorf("events of %v every %v in %d bytes make no sense", o.Window, o.Every, o.Buffer)
	}
	if o.Buffer == 0 {
		o.Buffer = defaultRing
	}
	size := os.Getpagesize()
	for size < o.Buffer {
		size *= 2
	}
	o.Buffer = size
	return o, nil
}

// ring is the size of the ring in bytes; 0 of nil options.
func (o *EventOptions) ring() int {
	if o == nil {
		return 0
	}
	return o.Buffer
}

// eventTaker takes single events during some of a source's windows.
//
// A poll is of the window whose reading has counted it, which its number tells:
// so polls and packets sum up to those of the sample. Returns of epoll_wait and
// requests are of the window that they ended in, by the clock.
type eventTaker struct {
	ring            eventRing
	on, period      int
	waits, requests bool

	// window counts windows from 0, the one under way.
	window int
	// taking is whether events are taken in it.
	taking bool

	pending pendingEvents
	// last is the number of the last poll of a NAPI on a CPU, and base that of
	// the last one before the window.
	last map[pollPlace]uint32
	base [][]uint32
	// lostBefore is what the ring had lost when the window began, and dropped
	// what did not fit in memory since.
	lostBefore, dropped uint64
	err                 error

	taken []model.Events
}

type pollPlace struct {
	slot uint32
	cpu  uint16
}

type pendingEvents struct {
	polls    []rawPoll
	waits    []rawWait
	requests []rawRequest
}

func newEventTaker(ring eventRing, o EventOptions, interval time.Duration, k kernel) *eventTaker {
	windows := func(d time.Duration) int { return int((d + interval - 1) / interval) }
	on := max(1, windows(o.Window))
	return &eventTaker{
		ring: ring, on: on, period: max(on, windows(o.Every)), window: -1,
		waits: k.observes(signalEpollReturns), requests: k.observes(signalSocketReads),
		last: make(map[pollPlace]uint32),
	}
}

func (t *eventTaker) takes(window int) bool { return window%t.period < t.on }

// prepare is called before the reading that ends a window: the events of the
// next one begin with it.
func (t *eventTaker) prepare() error {
	if t.taking || !t.takes(t.window+1) {
		return nil
	}
	return t.ring.want(true)
}

// fetch empties the ring.
func (t *eventTaker) fetch() error {
	if err := t.ring.drain(t.add); err != nil {
		return err
	}
	return t.err
}

func (t *eventTaker) add(record []byte) {
	e, err := decodeEvent(record)
	if err != nil {
		t.err = err
		return
	}
	p := &t.pending
	switch e.kind {
	case eventPoll:
		t.last[pollPlace{e.poll.slot, e.poll.cpu}] = e.poll.sequence
		if len(p.polls) < maxTaken {
			p.polls = append(p.polls, e.poll)
			return
		}
	case eventWait:
		if len(p.waits) < maxTaken {
			p.waits = append(p.waits, e.wait)
			return
		}
	case eventRequest:
		if len(p.requests) < maxTaken {
			p.requests = append(p.requests, e.request)
			return
		}
	}
	t.dropped++
}

// await fetches the events of a reading's polls that are still to come.
func (t *eventTaker) await(r *reading) error {
	for waited := time.Duration(0); ; waited += straggling {
		if err := t.fetch(); err != nil {
			return err
		}
		lost, err := t.ring.lost()
		if err != nil {
			return err
		}
		if lost != t.lostBefore || waited >= maxStraggling || t.complete(r) {
			return nil
		}
		time.Sleep(straggling)
	}
}

// complete reports whether the last poll that the reading has told of itself.
// One that was lost never does.
func (t *eventTaker) complete(r *reading) bool {
	for slot := range r.polls {
		for cpu, n := range r.polls[slot] {
			place := pollPlace{uint32(slot), uint16(cpu)}
			if n == polledAt(t.base, place) {
				continue
			}
			if last, ok := t.last[place]; !ok || !counts(last, n) {
				return false
			}
		}
	}
	return true
}

// counts reports whether a count of polls includes the one with a number; both
// are modulo 2^32.
func counts(polls, sequence uint32) bool { return int32(polls-sequence) >= 0 }

// polledAt is how many polls there were by a reading.
func polledAt(polls [][]uint32, at pollPlace) uint32 {
	if int(at.slot) >= len(polls) || int(at.cpu) >= len(polls[at.slot]) {
		return 0
	}
	return polls[at.slot][at.cpu]
}

// end ends a window with the reading that was taken right after at, since boot,
// and begins the next.
func (t *eventTaker) end(from, at time.Duration, r *reading, queues map[uint32]model.Queue) error {
	t.taken = nil
	next := t.takes(t.window + 1)
	if !t.taking && !next {
		t.window++
		return nil
	}
	if t.taking {
		if err := t.await(r); err != nil {
			return err
		}
	} else if err := t.fetch(); err != nil {
		return err
	}
	lost, err := t.ring.lost()
	if err != nil {
		return err
	}
	offset, err := t.ring.clockOffset()
	if err != nil {
		return err
	}
	mine := t.split(at-offset, r)
	t.base = t.base[:0]
	for _, polls := range r.polls {
		t.base = append(t.base, slices.Clone(polls))
	}
	if t.taking {
		t.taken = chunks(from, at, t.events(mine, offset, queues))
		t.taken[len(t.taken)-1].Lost = lost - t.lostBefore + t.dropped
	}
	t.lostBefore, t.dropped = lost, 0
	if !next {
		if err := t.ring.want(false); err != nil {
			return err
		}
		t.pending = pendingEvents{}
		clear(t.last)
	}
	t.window, t.taking = t.window+1, next
	return nil
}

// split takes from what is pending the events of the window that ends at, by
// the clock of events, with the reading.
func (t *eventTaker) split(at time.Duration, r *reading) pendingEvents {
	var mine pendingEvents
	// What told of itself late, after the window that counted it.
	t.pending.polls = slices.DeleteFunc(t.pending.polls, func(e rawPoll) bool {
		return counts(polledAt(t.base, pollPlace{e.slot, e.cpu}), e.sequence)
	})
	mine.polls, t.pending.polls = part(t.pending.polls, func(e rawPoll) bool {
		return counts(polledAt(r.polls, pollPlace{e.slot, e.cpu}), e.sequence)
	})
	mine.waits, t.pending.waits = part(t.pending.waits, func(e rawWait) bool { return e.at <= at })
	mine.requests, t.pending.requests = part(t.pending.requests, func(e rawRequest) bool { return e.at <= at })
	return mine
}

// part parts events, each part in its order.
func part[E any](all []E, first func(E) bool) (yes, no []E) {
	for _, e := range all {
		if first(e) {
			yes = append(yes, e)
		} else {
			no = append(no, e)
		}
	}
	return yes, no
}

// endedRequest is a request with the time at which it was over.
type endedRequest struct {
	at time.Duration
	model.RequestEvent
}

// windowEvents are the events of one window, ascending by time.
type windowEvents struct {
	polls    []model.PollEvent
	waits    []model.WaitEvent
	requests []endedRequest
}

// events gives raw events their queues and times since boot. Those of a queue
// that is not known, because it went away, are left out.
func (t *eventTaker) events(raw pendingEvents, offset time.Duration, queues map[uint32]model.Queue) windowEvents {
	w := windowEvents{polls: make([]model.PollEvent, 0, len(raw.polls))}
	for _, e := range raw.polls {
		if q, ok := queues[e.slot]; ok {
			w.polls = append(w.polls, model.PollEvent{At: e.at + offset, Queue: q, Work: e.packets, Loop: model.Loop(e.loop)})
		}
	}
	slices.SortStableFunc(w.polls, func(a, b model.PollEvent) int { return cmp.Compare(a.At, b.At) })
	if t.waits {
		w.waits = make([]model.WaitEvent, 0, len(raw.waits))
		for _, e := range raw.waits {
			w.waits = append(w.waits, model.WaitEvent{At: e.at + offset, PID: int(e.pid), Events: e.returned})
		}
		slices.SortStableFunc(w.waits, func(a, b model.WaitEvent) int { return cmp.Compare(a.At, b.At) })
	}
	if t.requests {
		w.requests = make([]endedRequest, 0, len(raw.requests))
		for _, e := range raw.requests {
			q, ok := queues[e.slot]
			if !ok {
				continue
			}
			receive := e.receive + offset
			r := endedRequest{e.at + offset, model.RequestEvent{Ready: e.ready + offset, Queue: q, Receive: &receive}}
			if e.send != 0 {
				send := e.send + offset
				r.Send = &send
			}
			w.requests = append(w.requests, r)
		}
		slices.SortStableFunc(w.requests, func(a, b endedRequest) int { return cmp.Compare(a.at, b.at) })
	}
	return w
}

// chunks hands a window over in as many spans as its events need, at least one.
func chunks(from, to time.Duration, w windowEvents) []model.Events {
	var out []model.Events
	for {
		cut, more := to, false
		limit := func(n int, at func(int) time.Duration) {
			if n > model.MaxEvents {
				cut, more = min(cut, at(model.MaxEvents-1)), true
			}
		}
		limit(len(w.polls), func(i int) time.Duration { return w.polls[i].At })
		limit(len(w.waits), func(i int) time.Duration { return w.waits[i].At })
		limit(len(w.requests), func(i int) time.Duration { return w.requests[i].at })
		e := model.Events{From: from, To: cut}
		e.Polls, w.polls = until(w.polls, cut, more, func(e model.PollEvent) time.Duration { return e.At })
		e.Waits, w.waits = until(w.waits, cut, more, func(e model.WaitEvent) time.Duration { return e.At })
		var requests []endedRequest
		requests, w.requests = until(w.requests, cut, more, func(e endedRequest) time.Duration { return e.at })
		if requests != nil {
			e.Requests = make([]model.RequestEvent, 0, len(requests))
		}
		for _, r := range requests {
			e.Requests = append(e.Requests, r.RequestEvent)
		}
		slices.SortStableFunc(e.Requests, func(a, b model.RequestEvent) int { return cmp.Compare(a.Ready, b.Ready) })
		out = append(out, e)
		if !more {
			return out
		}
		from = cut
	}
}

// until parts ascending events at cut, or takes all where none are to remain.
func until[E any](all []E, cut time.Duration, more bool, at func(E) time.Duration) (first, rest []E) {
	if !more {
		return all, nil
	}
	n := 0
	for n < min(len(all), model.MaxEvents) && at(all[n]) <= cut {
		n++
	}
	return all[:n:n], all[n:]
}

// Events returns the single events of the window that [Source.Next] returned
// last, ascending by their spans; nil where none were taken in it. No
// [model.Events] has more than [model.MaxEvents] of a kind, so there may be
// several; what was lost in the window is counted in the last of them. The
// result belongs to the caller.
func (s *Source) Events() []model.Events {
	if s.events == nil {
		return nil
	}
	return s.events.taken
}

// await waits for the end of the window under way, fetching events meanwhile.
func (s *Source) await(ctx context.Context) error {
	var look <-chan time.Time
	if s.events != nil && s.events.taking {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		look = ticker.C
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-s.ticker.C:
			return nil
		case <-look:
			if err := s.events.fetch(); err != nil {
				return errors.Join(err, ctx.Err())
			}
		}
	}
}

// endEvents ends the window of events with the reading that ends the window of
// the sample.
func (s *Source) endEvents(at time.Duration, r *reading) error {
	if s.events == nil {
		return nil
	}
	queues := make(map[uint32]model.Queue, len(s.queues))
	for key, q := range s.queues {
		queues[uint32(q.slot)] = key
	}
	return s.events.end(s.at, at, r, queues)
}
