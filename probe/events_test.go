package probe

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"autotune/model"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// scriptedRing is a ring in memory.
type scriptedRing struct {
	wanted  bool
	records [][]byte
	full    uint64
	offset  time.Duration
}

func (r *scriptedRing) want(on bool) error { r.wanted = on; return nil }

func (r *scriptedRing) drain(take func([]byte)) error {
	for _, record := range r.records {
		take(record)
	}
	r.records = nil
	return nil
}

func (r *scriptedRing) lost() (uint64, error) { return r.full, nil }

func (r *scriptedRing) clockOffset() (time.Duration, error) { return r.offset, nil }

// cpu is the one that the polls of a kernel in memory are on.
const cpu = uint32(1)

// put adds a record as the programs write it, where events are wanted.
func (r *scriptedRing) put(kind, slot uint32, at time.Duration, rest ...any) {
	if !r.wanted {
		return
	}
	b := binary.NativeEndian.AppendUint32(nil, kind)
	b = binary.NativeEndian.AppendUint32(b, slot)
	b = binary.NativeEndian.AppendUint64(b, uint64(at))
	for _, v := range rest {
		switch v := v.(type) {
		case uint32:
			b = binary.NativeEndian.AppendUint32(b, v)
		case time.Duration:
			b = binary.NativeEndian.AppendUint64(b, uint64(v))
		}
	}
	for len(b)%8 != 0 || len(b) < 32 {
		b = append(b, 0)
	}
	r.records = append(r.records, b)
}

// poll counts a poll of 2 packets and tells of it.
func (f *sourceFixture) tellPoll(ring *scriptedRing, id uint32) {
	f.kernel.poll(id, 1)
	slot := f.kernel.followed[id]
	var sequence uint32
	for _, n := range f.kernel.counts[slot].Work {
		sequence += n
	}
	ring.put(eventPoll, uint32(slot), time.Since(f.start)-ring.offset, uint32(2), sequence, cpu)
}

func TestEventsAreTakenInWholeWindows(t *testing.T) {
	for _, tt := range []struct {
		name          string
		window, every time.Duration
		want          string
	}{
		{"one in three", time.Second, 3 * time.Second, "+--+--"},
		{"rounded up", 1100 * time.Millisecond, 2500 * time.Millisecond, "++-++-"},
		{"all", 0, 0, "++++++"},
		{"longer than from one to the next", 2 * time.Second, time.Second, "++++++"},
		{"less than a window", time.Millisecond, 2 * time.Second, "+-+-+-"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ring := &scriptedRing{offset: time.Hour}
				f := newEventFixture(t, ring, EventOptions{Window: tt.window, Every: tt.every})
				got := ""
				for range tt.want {
					f.tellPoll(ring, 7)
					time.Sleep(500 * time.Millisecond)
					f.tellPoll(ring, 7)
					s := f.next(t)
					events := f.Events()
					if events == nil {
						got += "-"
						continue
					}
					got += "+"
					want := []model.Events{{
						From: s.At - s.Span, To: s.At, Requests: []model.RequestEvent{}, Waits: []model.WaitEvent{},
						Polls: []model.PollEvent{
							{At: s.At - time.Second, Queue: testQueue(0), Work: 2},
							{At: s.At - time.Second/2, Queue: testQueue(0), Work: 2},
						},
					}}
					if diff := gocmp.Diff(want, events); diff != "" {
						t.Errorf("(-want +got):\n%s", diff)
					}
				}
				if got != tt.want {
					t.Errorf("events in windows %s, want %s", got, tt.want)
				}
			})
		})
	}
}

func newEventFixture(t *testing.T, ring *scriptedRing, o EventOptions) *sourceFixture {
	t.Helper()
	return newFixtureOn(t, Options{Events: &o, Interval: time.Second}, ring, testNAPI(0, 7))
}

// A poll that the reading has not counted is of the next window, whatever the
// clock says, and so is one that the reading has and that tells of itself late.
func TestAPollIsOfTheWindowThatCountedIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := new(scriptedRing)
		f := newEventFixture(t, ring, EventOptions{})
		slot := uint32(f.kernel.followed[7])
		f.kernel.poll(7, 1)
		// The second poll is told of, and counted only later.
		ring.put(eventPoll, slot, 1, uint32(2), uint32(1), cpu)
		ring.put(eventPoll, slot, 2, uint32(5), uint32(2), cpu)
		f.next(t)
		first := f.Events()
		f.kernel.poll(7, 2)
		// The first again, and the third is on its way when the window ends.
		ring.put(eventPoll, slot, 3, uint32(2), uint32(1), cpu)
		go func() {
			time.Sleep(time.Second + 2*straggling)
			ring.put(eventPoll, slot, 4, uint32(7), uint32(3), cpu)
		}()
		f.next(t)
		second := f.Events()
		work := func(events []model.Events) (out []uint32) {
			for _, p := range events[0].Polls {
				out = append(out, p.Work)
			}
			return out
		}
		if diff := gocmp.Diff([][]uint32{{2}, {5, 7}}, [][]uint32{work(first), work(second)}); diff != "" {
			t.Errorf("packets by window (-want +got):\n%s", diff)
		}
	})
}

func TestWaitsRequestsAndLossesOfAWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := &scriptedRing{offset: 100, full: 40}
		f := newEventFixture(t, ring, EventOptions{})
		slot := uint32(f.kernel.followed[7])
		ring.put(eventWait, 777, 5, uint32(3), uint32(0))
		ring.put(eventRequest, slot, 9, time.Duration(4), time.Duration(6), time.Duration(9))
		ring.put(eventRequest, slot, 10, time.Duration(3), time.Duration(7), time.Duration(0))
		ring.put(eventRequest, 63, 11, time.Duration(3), time.Duration(7), time.Duration(0))
		// It ends after the window.
		ring.put(eventRequest, slot, 2*time.Second, time.Duration(20), time.Duration(30), 2*time.Second)
		ring.full += 7
		s := f.next(t)
		at := func(d time.Duration) *time.Duration { return &d }
		q := testQueue(0)
		want := []model.Events{{
			To: s.At, Lost: 7, Polls: []model.PollEvent{},
			Waits: []model.WaitEvent{{At: 105, PID: 777, Events: 3}},
			Requests: []model.RequestEvent{
				{Ready: 103, Queue: q, Receive: at(107)},
				{Ready: 104, Queue: q, Receive: at(106), Send: at(109)},
			},
		}}
		if diff := gocmp.Diff(want, f.Events()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		f.next(t)
		f.next(t)
		if got := f.Events()[0]; len(got.Requests) != 1 || got.Requests[0].Ready != 120 || got.Lost != 0 {
			t.Errorf("events %+v, want the request that ended late", got)
		}
	})
}

func TestARecordOfAnUnknownFormEndsTheSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := new(scriptedRing)
		f := newEventFixture(t, ring, EventOptions{})
		ring.put(9, 0, 1)
		if _, err := f.Next(t.Context()); !errors.Is(err, errRecord) {
			t.Errorf("error %v, want %v", err, errRecord)
		}
	})
}

func TestEventsBeyondTheLimitOfASpanMakeMoreSpans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := func(label string, n int) (out []time.Duration) {
			step := rapid.IntRange(0, 3).Draw(t, label+" step")
			for i := range n {
				out = append(out, time.Duration(1+i*step))
			}
			return out
		}
		size := rapid.IntRange(0, 3*model.MaxEvents)
		var w windowEvents
		for _, at := range times("polls", size.Draw(t, "polls")) {
			w.polls = append(w.polls, model.PollEvent{At: at})
		}
		for _, at := range times("waits", size.Draw(t, "waits")) {
			w.waits = append(w.waits, model.WaitEvent{At: at})
		}
		for _, at := range times("requests", size.Draw(t, "requests")) {
			w.requests = append(w.requests, endedRequest{at, model.RequestEvent{Ready: at - 1}})
		}
		to := time.Duration(1 + 9*model.MaxEvents)
		out := chunks(0, to, w)
		var polls []model.PollEvent
		waits, requests, from := 0, 0, time.Duration(0)
		for _, e := range out {
			if e.From != from || e.To < e.From {
				t.Fatalf("a span from %v to %v after one to %v", e.From, e.To, from)
			}
			if max(len(e.Polls), len(e.Waits), len(e.Requests)) > model.MaxEvents {
				t.Fatalf("%d polls, %d waits and %d requests in a span", len(e.Polls), len(e.Waits), len(e.Requests))
			}
			polls = append(polls, e.Polls...)
			waits += len(e.Waits)
			requests += len(e.Requests)
			from = e.To
		}
		if from != to || len(polls) != len(w.polls) || waits != len(w.waits) || requests != len(w.requests) {
			t.Fatalf("%d polls, %d waits, %d requests up to %v; want %d, %d, %d up to %v",
				len(polls), waits, requests, from, len(w.polls), len(w.waits), len(w.requests), to)
		}
		if !slices.IsSortedFunc(polls, func(a, b model.PollEvent) int { return cmp.Compare(a.At, b.At) }) {
			t.Fatal("polls do not ascend")
		}
	})
}

func TestEventOptionsThatMeanNothingAreRefused(t *testing.T) {
	for _, o := range []EventOptions{{Window: -1}, {Every: -1}, {Buffer: -1}, {Buffer: 2 << 30}} {
		if _, err := o.withDefaults(); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
	if o, err := (EventOptions{Buffer: 70000}).withDefaults(); err != nil || o.Buffer != 1<<17 {
		t.Errorf("%d bytes, %v; want the next power of two", o.Buffer, err)
	}
}

func FuzzDecodeEvent(f *testing.F) {
	ring := &scriptedRing{wanted: true}
	ring.put(eventPoll, 1, 2, uint32(3), uint32(4), cpu)
	ring.put(eventWait, 777, 5, uint32(3), uint32(0))
	ring.put(eventRequest, 1, 9, time.Duration(4), time.Duration(6), time.Duration(9))
	for _, record := range ring.records {
		f.Add(record)
	}
	f.Fuzz(func(t *testing.T, record []byte) {
		e, err := decodeEvent(record)
		if err != nil {
			if !errors.Is(err, errRecord) {
				t.Errorf("error %v", err)
			}
			return
		}
		if _, err := model.ParseLoop(model.Loop(e.poll.loop).String()); err != nil {
			t.Error(err)
		}
	})
}
