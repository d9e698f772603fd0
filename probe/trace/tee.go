package trace

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"autotune/model"
)

// Source yields samples; [Reader] and [Tee] are sources, and so are the live
// probes and the simulator. Next blocks until the next sample is there, and
// returns io.EOF at the end.
type Source interface {
	Next(context.Context) (model.Sample, error)
}

// Sink takes the records of a trace: a [Writer], or a [Series] of them.
type Sink interface {
	Write(model.Sample) error
	WriteEntry(json.RawMessage) error
	WriteOutcome(Outcome) error
	WriteConditions(time.Duration, Conditions) error
	WriteEvents(model.Events) error
}

// Tee writes to a trace what passes it: the samples of a source, and with
// [Tee.Actuator] and its own methods the rest of a run. A failed write never ends
// the run: it is counted and reported.
type Tee struct {
	source Source
	sink   Sink
	report func(error)

	mu     sync.Mutex
	failed uint64
	err    error
	// failing is set while the last write failed.
	failing bool
}

// NewTee returns a tee of source into w. Report, if not nil, is called with the
// first error and, after writes succeeded again, with the next first one; it
// runs between two samples and must be quick. The tee closes neither.
func NewTee(source Source, w Sink, report func(error)) *Tee {
	return &Tee{source: source, sink: w, report: report}
}

// Next returns source's next sample and its error, unchanged.
func (t *Tee) Next(ctx context.Context) (model.Sample, error) {
	sample, err := t.source.Next(ctx)
	if err != nil {
		return sample, err
	}
	t.note(t.sink.Write(sample))
	return sample, nil
}

// Actuator returns an actuator that passes on to a, and writes what it answers.
func (t *Tee) Actuator(a Actuator) Actuator { return &actuatorTee{tee: t, actuator: a} }

type actuatorTee struct {
	tee      *Tee
	actuator Actuator
}

// Apply returns the actuator's answer, unchanged.
func (a *actuatorTee) Apply(ctx context.Context, want model.Config) (model.Config, error) {
	got, err := a.actuator.Apply(ctx, want)
	a.tee.note(a.tee.sink.WriteOutcome(NewOutcome(want, got, err)))
	return got, err
}

// WriteConditions writes conditions; see [Writer.WriteConditions].
func (t *Tee) WriteConditions(at time.Duration, c Conditions) {
	t.note(t.sink.WriteConditions(at, c))
}

// WriteEvents writes single events; see [Writer.WriteEvents].
func (t *Tee) WriteEvents(e model.Events) { t.note(t.sink.WriteEvents(e)) }

// WriteEntry writes a journal entry; see [Writer.WriteEntry].
func (t *Tee) WriteEntry(entry json.RawMessage) { t.note(t.sink.WriteEntry(entry)) }

func (t *Tee) note(err error) {
	t.mu.Lock()
	first := err != nil && !t.failing
	t.failing = err != nil
	if err != nil {
		t.failed++
		t.err = err
	}
	t.mu.Unlock()
	if first && t.report != nil {
		t.report(err)
	}
}

// Failed returns how many writes failed, and the last error. How many records
// the failures cost, the trace itself tells as gaps.
func (t *Tee) Failed() (uint64, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.failed, t.err
}
