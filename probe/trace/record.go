package trace

import (
	"bytes"
	"encoding/json"
	"time"

	"autotune/model"
)

// Kind says what a line of a trace is.
type Kind string

// The kinds that this package writes.
const (
	KindHeader     Kind = "header"
	KindFrame      Kind = "frame"
	KindSample     Kind = "sample"
	KindApply      Kind = "apply"
	KindJournal    Kind = "journal"
	KindConditions Kind = "conditions"
	KindEvents     Kind = "events"
	KindGap        Kind = "gap"
	KindEnd        Kind = "end"
)

// Record is one line of a trace. Which field is set follows from Kind.
type Record struct {
	Kind Kind
	// Sample is set for [KindSample].
	Sample model.Sample
	// Outcome is set for [KindApply].
	Outcome *Outcome
	// Entry is set for [KindJournal]: the entry's bytes as they were handed
	// to the writer.
	Entry json.RawMessage
	// Conditions is set for [KindConditions], and At to when they were seen,
	// since boot.
	Conditions *Conditions
	At         time.Duration
	// Events is set for [KindEvents].
	Events *model.Events
	// Gap is set for [KindGap].
	Gap Gap
}

// Gap counts what could not be written at that point of the trace.
type Gap struct {
	Samples uint64 `json:"lost_samples"`
	Others  uint64 `json:"lost_others"`
}

// journalStart begins a journal line as the writer writes it.
const journalStart = `{"kind":"journal","entry":`

// journalEntry returns the entry of a journal line, which it copies. There are
// as many of them as samples, so those of the usual form are only checked, not
// taken apart.
func journalEntry(line []byte) (json.RawMessage, error) {
	rest, usual := bytes.CutPrefix(line, []byte(journalStart))
	entry, closed := bytes.CutSuffix(rest, []byte("}"))
	if usual && closed && json.Valid(entry) {
		return bytes.Clone(entry), nil
	}
	var in struct {
		Entry json.RawMessage `json:"entry"`
	}
	err := unmarshal(line, &in)
	return in.Entry, err
}

type conditionsLine struct {
	Kind Kind          `json:"kind"`
	At   time.Duration `json:"at_ns"`
	Conditions
}

type gapLine struct {
	Kind Kind `json:"kind"`
	Gap
}

// frameLine opens every frame but the first. With its number and what came
// before it, a reader that skips damage knows what it skipped, and needs no
// header to know the schema.
type frameLine struct {
	Kind          Kind   `json:"kind"`
	SchemaVersion int    `json:"schema_version"`
	Frame         uint64 `json:"frame"`
	Samples       uint64 `json:"samples_before"`
	Others        uint64 `json:"others_before"`
}

type endLine struct {
	Kind    Kind   `json:"kind"`
	Samples uint64 `json:"samples"`
	Others  uint64 `json:"others"`
}
