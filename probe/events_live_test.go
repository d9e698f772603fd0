package probe

import (
	"math"
	"testing"
	"time"

	"autotune/bpf"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/google/go-cmp/cmp"
)

// eventSums are the polls and packets of events by loop, as a sample has them.
type eventSums struct {
	softirq, thread, application, softirqTimer, threadTimer [2]uint64
}

// sumEvents sums up what the events of a window say of a queue.
func sumEvents(events []model.Events, queue model.Queue) eventSums {
	var s eventSums
	for i := range events {
		for _, e := range events[i].Polls {
			if e.Queue != queue {
				continue
			}
			at := map[model.Loop][]*[2]uint64{
				model.LoopSoftirq:      {&s.softirq},
				model.LoopSoftirqTimer: {&s.softirq, &s.softirqTimer},
				model.LoopThread:       {&s.thread},
				model.LoopThreadTimer:  {&s.thread, &s.threadTimer},
				model.LoopApplication:  {&s.application},
			}[e.Loop]
			for _, sum := range at {
				sum[0]++
				sum[1] += uint64(e.Work)
			}
		}
	}
	return s
}

func sumSample(q *model.QueueSample) eventSums {
	pair := func(c model.PollCounts) [2]uint64 { return [2]uint64{c.Polls, c.Packets} }
	return eventSums{pair(q.Softirq), pair(q.Thread), pair(q.Busy), pair(*q.TimerSoftirq), pair(*q.TimerThread)}
}

// eventTotals are sums over windows, by events and by the samples.
type eventTotals struct {
	windows                  int
	polls, waits, requests   uint64
	countedPolls             uint64
	countedWaits, answered   uint64
	countedAnswered, packets uint64
	lost                     uint64
}

func (t *eventTotals) add(s model.Sample, events []model.Events) {
	t.windows++
	for i := range events {
		e := &events[i]
		t.polls += uint64(len(e.Polls))
		t.waits += uint64(len(e.Waits))
		t.requests += uint64(len(e.Requests))
		t.lost += e.Lost
		for _, r := range e.Requests {
			if r.Send != nil {
				t.answered++
			}
		}
	}
	for i := range s.Queues {
		q := &s.Queues[i]
		all := q.Softirq.Plus(q.Thread).Plus(q.Busy)
		t.countedPolls += all.Polls
		t.packets += all.Packets
		t.countedAnswered += q.Service.Count()
	}
	for _, a := range s.Apps {
		for _, n := range a.Waits {
			t.countedWaits += n
		}
	}
}

// about tells whether two counts of one thing differ by no more than what
// happens while a window ends.
func about(a, b uint64, windows int) bool {
	return math.Abs(float64(a)-float64(b)) <= float64(10*windows)+0.03*float64(b)
}

func TestEventsSumUpToTheSamplesOfTheirWindows(t *testing.T) {
	for _, tt := range []struct {
		name     string
		bed      testbed.Options
		settings model.Settings
	}{
		{name: "interrupts", bed: testbed.Options{Threaded: true, ServerCPU: 1}},
		{
			name: "timers, two queues", bed: testbed.Options{Queues: 2},
			settings: model.Settings{DeferHardIRQs: 10, GROFlushTimeout: 200 * time.Microsecond},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			testbed.Attempt(t, func(t testing.TB) {
				b := newBed(t, tt.bed)
				b.set(t, tt.settings)
				b.serve(t, nil)
				s := b.open(t, Options{
					Interval: 100 * time.Millisecond, EpollEvents: true,
					Events: &EventOptions{Window: 150 * time.Millisecond, Every: 400 * time.Millisecond},
				})
				b.phase(t, "load", 5000)
				var total eventTotals
				for window := range 24 {
					sample := next(t, s)
					events := s.Events()
					if taken := window%4 < 2; taken != (events != nil) {
						t.Fatalf("window %d: %d spans of events, want some: %t", window, len(events), taken)
					}
					if events == nil {
						continue
					}
					checkSpans(t, events, sample)
					if sample.Lost != 0 || events[len(events)-1].Lost != 0 {
						t.Logf("window %d: lost %d by the probes, %d events", window, sample.Lost, events[len(events)-1].Lost)
						continue
					}
					for i := range sample.Queues {
						q := &sample.Queues[i]
						if diff := cmp.Diff(sumSample(q), sumEvents(events, q.Queue), cmp.AllowUnexported(eventSums{})); diff != "" {
							t.Errorf("window %d, queue %v: polls and packets (-sample +events):\n%s", window, q.Queue, diff)
						}
					}
					// The server is known from its first read on.
					if window >= 4 {
						total.add(sample, events)
					}
				}
				t.Logf("%+v", total)
				if total.polls < 500 || total.answered < 500 || total.waits < 500 {
					t.Errorf("too little to compare: %+v", total)
				}
				if !about(total.answered, total.countedAnswered, total.windows) {
					t.Errorf("%d requests were answered by the events, %d by the samples", total.answered, total.countedAnswered)
				}
				if !about(total.waits, total.countedWaits, total.windows) {
					t.Errorf("%d returns of epoll_wait by the events, %d by the samples", total.waits, total.countedWaits)
				}
			})
		})
	}
}

// checkSpans proves what holds for the events of any window.
func checkSpans(t testing.TB, events []model.Events, s model.Sample) {
	t.Helper()
	// A window's reading is a little after its end, longer where this process
	// is held up.
	const late = 500 * time.Millisecond
	from, to := s.At-s.Span, s.At
	if events[0].From != from || events[len(events)-1].To != to {
		t.Errorf("events from %v to %v, the window from %v to %v", events[0].From, events[len(events)-1].To, from, to)
	}
	for i := range events {
		e := &events[i]
		last := time.Duration(0)
		for _, p := range e.Polls {
			if p.At < last || p.At < from-late || p.At > to+late {
				t.Fatalf("a poll at %v after one at %v, in a window from %v to %v", p.At, last, from, to)
			}
			last = p.At
		}
		last = 0
		for _, r := range e.Requests {
			if r.Ready < last || r.Receive == nil || *r.Receive < r.Ready || (r.Send != nil && (*r.Send < *r.Receive || *r.Send > to)) {
				t.Fatalf("request %+v after one that was ready at %v, window to %v", r, last, to)
			}
			last = r.Ready
		}
	}
}

func TestEventsThatFindNoRoomAreCounted(t *testing.T) {
	testbed.Attempt(t, func(t testing.TB) {
		b := newBed(t, testbed.Options{Threaded: true, ServerCPU: 1})
		b.serve(t, nil)
		s := b.open(t, Options{
			Interval: 100 * time.Millisecond, EpollEvents: true,
			Events: &EventOptions{Buffer: 1},
		})
		b.phase(t, "load", 8000)
		next(t, s)
		next(t, s)
		var total eventTotals
		for range 10 {
			sample := next(t, s)
			if sample.Lost != 0 {
				t.Errorf("%d counts were lost with the events", sample.Lost)
			}
			total.add(sample, s.Events())
		}
		t.Logf("%+v", total)
		if total.lost == 0 || total.polls >= total.countedPolls {
			t.Errorf("%d of %d polls told of themselves, %d events were lost; want a loss", total.polls, total.countedPolls, total.lost)
		}
		got, want := total.polls+total.waits+total.requests+total.lost, total.countedPolls+total.countedWaits+total.countedAnswered
		if !about(got, want, total.windows) {
			t.Errorf("%d events were taken or lost, the samples count %d", got, want)
		}
	})
}

func TestEventProgramsAreAcceptedAsRawTracepoints(t *testing.T) {
	testbed.Require(t)
	l, collection, err := newLoader(mapSizes{napis: 64, cpus: 2, ring: defaultRing})
	if err != nil {
		t.Fatal(err)
	}
	defer collection.Close()
	for _, s := range signals() {
		for _, name := range s.programs {
			program, err := l.load(l.raw, name)
			if err != nil {
				t.Error(err)
				continue
			}
			program.Close()
		}
	}
}

// Where no events are asked for, nothing is left of them: the programs are
// others, and the ring is not there.
func TestWithoutEventsTheProgramsKnowOfNone(t *testing.T) {
	plain, err := bpf.LoadReceive()
	if err != nil {
		t.Fatal(err)
	}
	events, err := bpf.LoadReceiveEvents()
	if err != nil {
		t.Fatal(err)
	}
	if plain.Maps[bpf.ReceiveEventsMapRing] != nil || plain.Variables[bpf.ReceiveEventsVarEventsWanted] != nil {
		t.Error("the programs of a run without events have their ring")
	}
	for _, name := range []string{
		bpf.ReceiveProgNapiPoll, bpf.ReceiveProgSockRecvLength, bpf.ReceiveProgSockSendLength, bpf.ReceiveProgEpollWait,
	} {
		without, with := len(plain.Programs[name].Instructions), len(events.Programs[name].Instructions)
		if without >= with {
			t.Errorf("%s has %d instructions without events, %d with them", name, without, with)
		}
		for _, ins := range plain.Programs[name].Instructions {
			if ins.Reference() == bpf.ReceiveEventsMapRing {
				t.Errorf("%s refers to %s", name, ins.Reference())
			}
		}
	}
}
