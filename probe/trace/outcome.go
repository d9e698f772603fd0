package trace

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"autotune/model"
)

// Actuator is what a recorded run writes by; see the tuner package.
type Actuator interface {
	Apply(context.Context, model.Config) (model.Config, error)
}

// Outcome is what an actuator answered to one Apply. Where the kernel refused,
// or another writer was faster, the decisions that follow depend on it; with
// it they can be made again without a kernel.
type Outcome struct {
	// Wanted is what was asked for, and ReadBack what those queues read
	// afterwards; one that could not be read is missing there. Both ascend by
	// queue.
	Wanted   []QueueSettings `json:"wanted"`
	ReadBack []QueueSettings `json:"read_back"`
	// Failures are the failures of single queues, in the order in which they
	// were reported.
	Failures []Failure `json:"failures"`
	// Error is the text of the whole error; nil when there was none.
	Error *string `json:"error"`
	// Whole tells that the error, or a part of it, belongs to no queue.
	Whole bool `json:"whole"`
}

// Failure is a [model.QueueError].
type Failure struct {
	Queue model.Queue `json:"queue"`
	Op    string      `json:"op"`
	// Text is the error's own text, without operation and queue.
	Text string `json:"text"`
	// Is names the errors of the model that it wraps: gone, link_down,
	// foreign_write, read_only, busy, out_of_bounds.
	Is []string `json:"is"`
}

// sentinel is an error that callers tell apart, under the name that it has in
// a trace.
type sentinel struct {
	name string
	err  error
}

func sentinels() []sentinel {
	return []sentinel{
		{"gone", model.ErrGone},
		{"link_down", model.ErrLinkDown},
		{"foreign_write", model.ErrForeignWrite},
		{"read_only", model.ErrReadOnly},
		{"busy", model.ErrBusy},
		{"out_of_bounds", model.ErrOutOfBounds},
	}
}

// NewOutcome describes the answer got, err to want.
func NewOutcome(want, got model.Config, err error) Outcome {
	o := Outcome{Wanted: QueueSettingsOf(want), ReadBack: []QueueSettings{}, Failures: []Failure{}}
	for _, w := range o.Wanted {
		if s, ok := got[w.Queue]; ok {
			o.ReadBack = append(o.ReadBack, QueueSettings{Queue: w.Queue, Settings: s})
		}
	}
	if err != nil {
		text := err.Error()
		o.Error = &text
		o.Whole = !o.single(err)
	}
	return o
}

// single takes an error apart, and reports whether all of it belongs to single
// queues.
func (o *Outcome) single(err error) bool {
	switch e := err.(type) { //nolint:errorlint // the tree is walked node by node
	case *model.QueueError:
		f := Failure{Queue: e.Queue, Op: e.Op, Text: fmt.Sprint(e.Err), Is: []string{}}
		for _, s := range sentinels() {
			if errors.Is(e, s.err) {
				f.Is = append(f.Is, s.name)
			}
		}
		o.Failures = append(o.Failures, f)
		return true
	case interface{ Unwrap() []error }:
		all := len(e.Unwrap()) > 0
		for _, part := range e.Unwrap() {
			all = o.single(part) && all
		}
		return all
	case interface{ Unwrap() error }:
		return e.Unwrap() != nil && o.single(e.Unwrap())
	}
	return false
}

// Result is the answer again: for whoever tells its errors apart by
// [errors.Is] and [model.QueueError], and prints them, it is that of the
// actuator.
func (o Outcome) Result() (model.Config, error) {
	got := asConfig(o.ReadBack)
	if o.Error == nil {
		return got, nil
	}
	err := &outcomeError{text: *o.Error}
	for _, f := range o.Failures {
		err.parts = append(err.parts, &model.QueueError{Queue: f.Queue, Op: f.Op, Err: &failureError{f}})
	}
	if o.Whole {
		err.parts = append(err.parts, errors.New(*o.Error))
	}
	return got, err
}

// Asked returns what was asked for.
func (o Outcome) Asked() model.Config { return asConfig(o.Wanted) }

func asConfig(list []QueueSettings) model.Config {
	out := make(model.Config, len(list))
	for _, item := range list {
		out[item.Queue] = item.Settings
	}
	return out
}

// QueueSettingsOf lists a configuration in ascending order of queues.
func QueueSettingsOf(c model.Config) []QueueSettings {
	out := make([]QueueSettings, 0, len(c))
	for _, q := range sortedQueues(c) {
		out = append(out, QueueSettings{Queue: q, Settings: c[q]})
	}
	return out
}

// outcomeError is the error of a recorded answer.
type outcomeError struct {
	text  string
	parts []error
}

func (e *outcomeError) Error() string { return e.text }

func (e *outcomeError) Unwrap() []error { return e.parts }

// failureError is what a recorded failure of one queue wrapped.
type failureError struct{ failure Failure }

func (e *failureError) Error() string { return e.failure.Text }

func (e *failureError) Is(target error) bool {
	for _, s := range sentinels() {
		if target == s.err {
			return slices.Contains(e.failure.Is, s.name)
		}
	}
	return false
}

type applyLine struct {
	Kind Kind `json:"kind"`
	Outcome
}

func marshalOutcome(o Outcome) ([]byte, error) {
	line, err := json.Marshal(applyLine{Kind: KindApply, Outcome: o})
	if err != nil {
		return nil, fmt.Errorf("encode the outcome of an apply: %w", err)
	}
	return line, nil
}
