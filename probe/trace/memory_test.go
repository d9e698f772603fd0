package trace

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"time"

	"autotune/model"
)

// pipedTrace yields a trace while it is being written, so that one of any
// length can be read; every tenth window has so many single events of each kind.
func pipedTrace(tb testing.TB, queues, samples, events int) io.Reader {
	tb.Helper()
	source := newRealistic(1, queues)
	source.all = true
	r, w := io.Pipe()
	go func() {
		writer, err := NewWriter(w, Header{}, Options{})
		if err == nil {
			// What is drawn once is written again and again: drawing costs
			// more than reading.
			s := source.next()
			for i := range samples {
				s.At += s.Span
				if err = writer.Write(s); err != nil {
					break
				}
				if events == 0 || i%10 != 0 {
					continue
				}
				for _, e := range eventsOf(&s, events).Split(model.MaxEvents) {
					err = errors.Join(err, writer.WriteEvents(e))
				}
			}
			err = errors.Join(err, writer.Close())
		}
		w.CloseWithError(err)
	}()
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

// eventsOf are so many events of each kind, spread evenly over the window.
func eventsOf(s *model.Sample, n int) model.Events {
	e := model.Events{From: s.At - s.Span, To: s.At}
	for k := range n {
		at := e.From + s.Span*time.Duration(k+1)/time.Duration(n+1)
		q := s.Queues[k*7%len(s.Queues)].Queue
		receive, send := at+time.Duration(k%997), at+time.Duration(997+k%1013)
		e.Polls = append(e.Polls, model.PollEvent{At: at, Queue: q, Work: uint32(k % 5)})
		e.Waits = append(e.Waits, model.WaitEvent{At: at, PID: 4100, Events: 1})
		e.Requests = append(e.Requests, model.RequestEvent{Ready: at, Queue: q, Receive: &receive, Send: &send})
	}
	return e
}

// The memory of steps with single events is that of one window's, however long the
// trace.
func TestMemoryOfStepsDoesNotGrowWithTheEventsOfATrace(t *testing.T) {
	const perWindow = 40000
	r, err := NewReader(pipedTrace(t, 8, 120, perWindow), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	steps := NewSteps(r)
	steps.Events = true
	var at40, most uint64
	polls := 0
	for n := 1; ; n++ {
		step, err := steps.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range step.Events {
			polls += len(e.Polls)
		}
		if n%10 != 1 || n < 40 {
			continue
		}
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		if n < 50 {
			at40 = m.HeapAlloc
		}
		most = max(most, m.HeapAlloc)
		runtime.KeepAlive(step)
	}
	if polls != 12*perWindow {
		t.Errorf("%d polls, want %d", polls, 12*perWindow)
	}
	t.Logf("%d MiB after 40 steps, %d MiB at the most (writer included)", at40>>20, most>>20)
	if most > at40+16<<20 || most > 100<<20 {
		t.Errorf("%d MiB after 40 steps, %d MiB later", at40>>20, most>>20)
	}
}

// A reader's memory does not depend on the trace's length: after 200 samples of
// 64 queues it holds what it holds after 800, and a day would fit into
// 100 MiB.
func TestMemoryOfAReaderDoesNotGrowWithTheTrace(t *testing.T) {
	r, err := NewReader(pipedTrace(t, 64, 800, 0), ReaderOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var at200, most uint64
	for n := 1; ; n++ {
		if _, err := r.Next(context.Background()); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if n%200 == 0 {
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			if n == 200 {
				at200 = m.HeapAlloc
			}
			most = max(most, m.HeapAlloc)
		}
	}
	t.Logf("%d MiB after 200 samples, %d MiB at the most (writer included)", at200>>20, most>>20)
	if most > at200+8<<20 || most > 100<<20 {
		t.Errorf("%d MiB after 200 samples, %d MiB later", at200>>20, most>>20)
	}
}
