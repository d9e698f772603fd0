package main

import (
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
)

// stalled is a writer whose reader never reads.
type stalled struct{}

func (stalled) Write([]byte) (int, error) { select {} }

func TestAStalledReaderDoesNotHoldUpTheEnd(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	o := newOutlet(ctx, stalled{})
	for range outletLines + 1 {
		if _, err := o.Write([]byte("line\n")); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if _, err := o.Write([]byte("one too many\n")); !errors.Is(err, errNobodyReads) {
		t.Errorf("write after the end: %v, want %v", err, errNobodyReads)
	}
	if err := o.Close(); !errors.Is(err, errNobodyReads) {
		t.Errorf("close: %v, want %v", err, errNobodyReads)
	}
}

func TestAnOutletPassesOnEverythingAndThenTheError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		o := newOutlet(t.Context(), w)
		if _, err := o.Write([]byte("hello\n")); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, 6)
		if _, err := io.ReadFull(r, got); err != nil || string(got) != "hello\n" {
			t.Errorf("read %q, %v", got, err)
		}
		_ = r.CloseWithError(os.ErrClosed)
		_, _ = o.Write([]byte("lost\n"))
		synctest.Wait()
		if _, err := o.Write([]byte("more\n")); !errors.Is(err, os.ErrClosed) {
			t.Errorf("write after the failure: %v", err)
		}
		if err := o.Close(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("close: %v", err)
		}
	})
}
