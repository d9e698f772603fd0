package trace_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"autotune/model"
	"autotune/probe/trace"
)

// A run writes its samples and its journal; a replay draws the samples from
// the trace and is handed the journal on the way.
func Example() {
	var file bytes.Buffer
	w, err := trace.NewWriter(&file, trace.Header{Host: "server-1", Interval: time.Second}, trace.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range 2 {
		s := model.Sample{At: time.Duration(i+1) * time.Second, Span: time.Second}
		if err := errors.Join(w.Write(s), w.WriteEntry(json.RawMessage(`{"why":"no evidence"}`))); err != nil {
			fmt.Println(err)
			return
		}
	}
	if err := w.Close(); err != nil {
		fmt.Println(err)
		return
	}

	r, err := trace.NewReader(&file, trace.ReaderOptions{
		OnRecord: func(rec trace.Record) error {
			fmt.Println(rec.Kind, string(rec.Entry))
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	for {
		s, err := r.Next(context.Background())
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("sample at", s.At)
	}
	fmt.Println("closed by its recorder:", r.Stats().Ended)
	// Output:
	// sample at 1s
	// journal {"why":"no evidence"}
	// sample at 2s
	// journal {"why":"no evidence"}
	// closed by its recorder: true
}
