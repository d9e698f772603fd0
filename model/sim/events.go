package sim

import (
	"cmp"
	"slices"
	"time"

	"autotune/model"
)

// laneEvents takes what a lane does one by one. A nil value takes nothing.
type laneEvents struct {
	polls    []lanePoll
	waits    []laneWait
	requests []laneRequest
}

type lanePoll struct {
	at   int64
	work int
	loop model.Loop
}

type laneWait struct {
	at     int64
	events int
}

type laneRequest struct{ ready, receive, send int64 }

func (e *laneEvents) poll(at int64, work int, loop model.Loop) {
	if e != nil {
		e.polls = append(e.polls, lanePoll{at, work, loop})
	}
}

// emptyPolls takes the n polls from an instant on that a busy poll makes in one
// step.
func (e *laneEvents) emptyPolls(from, each, n int64) {
	if e == nil {
		return
	}
	for i := range n {
		e.poll(from+(i+1)*each, 0, model.LoopApplication)
	}
}

func (e *laneEvents) wait(at int64, events int) {
	if e != nil {
		e.waits = append(e.waits, laneWait{at, events})
	}
}

func (e *laneEvents) request(ready, receive, send int64) {
	if e != nil {
		e.requests = append(e.requests, laneRequest{ready, receive, send})
	}
}

func (e *laneEvents) reset() {
	if e != nil {
		*e = laneEvents{polls: e.polls[:0], waits: e.waits[:0], requests: e.requests[:0]}
	}
}

// loop returns whose poll the last noted one was.
func (l *lane) loop(softirq bool) model.Loop {
	byTimer := l.loops.starter == starterTimer
	switch {
	case !softirq:
		return model.LoopApplication
	case l.host.Host.ThreadedNAPI && byTimer:
		return model.LoopThreadTimer
	case l.host.Host.ThreadedNAPI:
		return model.LoopThread
	case byTimer:
		return model.LoopSoftirqTimer
	}
	return model.LoopSoftirq
}

// collectEvents takes the single events of a window from the lanes.
func (s *Simulator) collectEvents(from, to time.Duration) []model.Events {
	all := model.Events{
		From: from, To: to,
		Polls: []model.PollEvent{}, Waits: []model.WaitEvent{}, Requests: []model.RequestEvent{},
	}
	for i, l := range s.lanes {
		queue := SimulatedQueue(i)
		for _, p := range l.events.polls {
			all.Polls = append(all.Polls, model.PollEvent{At: time.Duration(p.at), Queue: queue, Work: uint32(p.work), Loop: p.loop})
		}
		for _, w := range l.events.waits {
			all.Waits = append(all.Waits, model.WaitEvent{At: time.Duration(w.at), PID: 1, Events: uint32(w.events)})
		}
		for _, r := range l.events.requests {
			receive, send := time.Duration(r.receive), time.Duration(r.send)
			all.Requests = append(all.Requests, model.RequestEvent{Ready: time.Duration(r.ready), Queue: queue, Receive: &receive, Send: &send})
		}
		l.events.reset()
	}
	slices.SortStableFunc(all.Polls, func(a, b model.PollEvent) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(all.Waits, func(a, b model.WaitEvent) int { return cmp.Compare(a.At, b.At) })
	slices.SortStableFunc(all.Requests, func(a, b model.RequestEvent) int { return cmp.Compare(a.Ready, b.Ready) })
	return all.Split(model.MaxEvents)
}

// Events returns what happened one by one in the window that [Simulator.Next]
// returned last, if the options want it: in as many spans as [model.MaxEvents]
// asks for. An action that the window's end cut, like its counts, is of the
// window that it began in.
func (s *Simulator) Events() []model.Events { return s.events }
