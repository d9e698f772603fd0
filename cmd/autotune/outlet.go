package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"time"
)

var errNobodyReads = errors.New("nobody reads the output")

const (
	// outletLines is how far output may lag behind.
	outletLines = 1024
	// outletWait is how long the end waits for what is left to be read.
	outletWait = 2 * time.Second
)

// outlet writes in the background, so that a reader that stalls (a pager, a
// full pipe) can hold up decisions but not the end of a run: from the end of
// its context on, what does not fit is dropped.
type outlet struct {
	ctx   context.Context
	lines chan []byte
	done  chan struct{}
	// err is why writing failed; valid once failed is closed.
	err    error
	failed chan struct{}
}

func newOutlet(ctx context.Context, w io.Writer) *outlet {
	o := &outlet{ctx: ctx, lines: make(chan []byte, outletLines), done: make(chan struct{}), failed: make(chan struct{})}
	go func() {
		defer close(o.done)
		for line := range o.lines {
			if o.err != nil {
				continue
			}
			if _, err := w.Write(line); err != nil {
				o.err = err
				close(o.failed)
			}
		}
	}()
	return o
}

// Write implements [io.Writer]. An error of the underlying writer is returned
// by a later call.
func (o *outlet) Write(p []byte) (int, error) {
	select {
	case <-o.failed:
		return 0, o.err
	default:
	}
	line := bytes.Clone(p)
	select {
	case o.lines <- line:
		return len(p), nil
	default:
	}
	select {
	case o.lines <- line:
		return len(p), nil
	case <-o.failed:
		return 0, o.err
	case <-o.ctx.Done():
		return 0, errNobodyReads
	}
}

// Close waits for what was written to be read, but not for ever. Nothing may be
// written after it.
func (o *outlet) Close() error {
	close(o.lines)
	timer := time.NewTimer(outletWait)
	defer timer.Stop()
	select {
	case <-o.done:
		return o.err
	case <-timer.C:
		return errNobodyReads
	}
}
