package main

import (
	"context"
	"errors"
	"io"
	"time"

	"autotune/model"
	"autotune/probe/trace"
)

// stepSource is the trace as the source of a loop. It reads ahead, on a CPU of
// its own.
type stepSource struct {
	steps   <-chan readStep
	cancel  context.CancelFunc
	step    trace.Step
	samples uint64
	span    time.Duration
	// damage is why the trace could not be read to its end.
	damage error
}

// readStep is a step, or why there is none.
type readStep struct {
	step trace.Step
	err  error
}

// How many steps are read before they are asked for: fewer with single events, of
// which each may have tens of megabytes.
const (
	readAhead       = 32
	readEventsAhead = 1
)

// newStepSource begins to read, with single events or without. The source must be
// closed before the reader is used for anything else.
func newStepSource(r *trace.Reader, events bool) *stepSource {
	ctx, cancel := context.WithCancel(context.Background())
	ahead := readAhead
	if events {
		ahead = readEventsAhead
	}
	out := make(chan readStep, ahead)
	go func() {
		defer close(out)
		steps := trace.NewSteps(r)
		steps.Events = events
		for {
			step, err := steps.Next()
			select {
			case out <- readStep{step, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return &stepSource{steps: out, cancel: cancel}
}

// Next implements [tuner.Source].
func (s *stepSource) Next(ctx context.Context) (model.Sample, error) {
	if err := ctx.Err(); err != nil {
		return model.Sample{}, err
	}
	step, err := s.read()
	if err != nil {
		return model.Sample{}, err
	}
	s.step = step
	s.samples++
	s.span += step.Sample.Span
	return step.Sample, nil
}

// read returns the next step, and io.EOF at the end however often it is asked.
func (s *stepSource) read() (trace.Step, error) {
	next, ok := <-s.steps
	switch {
	case !ok && s.damage == nil:
		return trace.Step{}, io.EOF
	case !ok:
		return trace.Step{}, s.damage
	case next.err != nil && !errors.Is(next.err, io.EOF):
		s.damage = next.err
	}
	return next.step, next.err
}

// drain reads what is left, to learn how the trace ends.
func (s *stepSource) drain() {
	for {
		if _, err := s.read(); err != nil {
			return
		}
	}
}

// close ends the reading.
func (s *stepSource) close() {
	s.cancel()
	s.drain()
}
