package trace

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
)

// pipedTrace yields a trace while it is being written, so that one of any
// length can be read.
func pipedTrace(tb testing.TB, queues, samples int) io.Reader {
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
			for range samples {
				s.At += s.Span
				if err = writer.Write(s); err != nil {
					break
				}
			}
			err = errors.Join(err, writer.Close())
		}
		w.CloseWithError(err)
	}()
	tb.Cleanup(func() { _ = r.Close() })
	return r
}

// A reader's memory does not depend on the trace's length: after 200 samples of
// 64 queues it holds what it holds after 800, and a day would fit into
// 100 MiB.
func TestMemoryOfAReaderDoesNotGrowWithTheTrace(t *testing.T) {
	r, err := NewReader(pipedTrace(t, 64, 800), ReaderOptions{})
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
