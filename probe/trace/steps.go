package trace

import (
	"encoding/json"
	"errors"
	"io"

	"autotune/model"
)

// Step is one sample of a run and what the run did upon it.
type Step struct {
	Sample model.Sample
	// Outcome is what the actuator answered; nil where nothing was applied,
	// or not recorded.
	Outcome *Outcome
	// Entries are the journal entries that follow from the sample.
	Entries []json.RawMessage
	// Events are the single events of the sample's window, where [Steps.Events]
	// asks for them.
	Events []*model.Events
	// LostBefore counts the records that the recorder could not write between
	// the sample before and this one.
	LostBefore Gap
	// Complete tells that all of the step is here. The last one of a trace
	// that was not closed, and one after which records were lost, may lack
	// outcome and entries.
	Complete bool
}

// Steps reads a trace step by step.
type Steps struct {
	// Events keeps single events, which take much more memory than the sample
	// that they follow.
	Events bool

	reader *Reader
	next   *model.Sample
	lost   Gap
	err    error
}

// NewSteps returns the steps of what r has not yet read. It reads one sample
// ahead of the step that it returned.
func NewSteps(r *Reader) *Steps { return &Steps{reader: r} }

// Next returns the next step. Its errors are those of [Reader.Record]; what
// can be read of the step before them is returned first, as incomplete.
func (s *Steps) Next() (Step, error) {
	if s.next == nil && s.err == nil {
		s.read(&Step{})
	}
	if s.next == nil {
		return Step{}, s.err
	}
	step := Step{Sample: *s.next, LostBefore: s.lost}
	s.next, s.lost = nil, Gap{}
	s.read(&step)
	step.Complete = s.lost == Gap{} &&
		(s.next != nil || errors.Is(s.err, io.EOF) && s.reader.Stats().Ended)
	return step, nil
}

// read adds the records before the next sample to step.
func (s *Steps) read(step *Step) {
	for s.next == nil && s.err == nil {
		record, err := s.reader.Record()
		if err != nil {
			s.err = err
			return
		}
		switch record.Kind {
		case KindSample:
			s.next = &record.Sample
		case KindGap:
			s.lost.add(record.Gap)
		case KindApply:
			if s.lost == (Gap{}) {
				step.Outcome = record.Outcome
			}
		case KindJournal:
			if s.lost == (Gap{}) {
				step.Entries = append(step.Entries, record.Entry)
			}
		case KindEvents:
			if s.Events {
				step.Events = append(step.Events, record.Events)
			}
		default:
		}
	}
}
