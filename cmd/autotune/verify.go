package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"autotune/model"
	"autotune/probe/trace"
	"autotune/tuner"
)

// verified is what came of deciding again, in the output of replay --verify.
type verified struct {
	Kind   string `json:"kind"` // "verify"
	File   string `json:"file"`
	Policy string `json:"policy"`
	// Identical: every recorded entry came out byte for byte, as far as the
	// trace tells.
	Identical bool `json:"identical"`
	// Samples were decided upon again, and Entries of the journal came out
	// the same.
	Samples uint64 `json:"samples"`
	Entries uint64 `json:"entries"`
	// First is where the replay first differs; null where it does not.
	First *difference `json:"first_difference"`
	// Unproven is why the rest of the trace proves nothing; null where all of
	// it was verified.
	Unproven *string    `json:"unproven"`
	Trace    traceState `json:"trace"`
}

// difference is one entry of the journal that came out differently.
type difference struct {
	// Entry numbers the journal's entries from 1, At is the end of the window
	// that it followed from, since boot.
	Entry uint64        `json:"entry"`
	At    time.Duration `json:"at_ns"`
	What  string        `json:"what"`
	// Fields are those that differ; empty where one side has no entry.
	Fields   []string        `json:"fields"`
	Recorded json.RawMessage `json:"recorded"`
	Replayed json.RawMessage `json:"replayed"`
}

// verify decides again as the recorded run did, and compares.
func (c *replayCmd) verify(ctx context.Context, std streams, rec recording) (ok bool, err error) {
	path := rec.String()
	reader, err := c.open(rec)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	options, err := c.options(reader.Header(), "")
	if err != nil {
		return false, err
	}
	v := &verifier{source: newStepSource(reader, false), progress: newLateProgress(std.err, "verifying "+path)}
	defer v.source.close()
	options.Source = v
	options.Journal = tuner.NewJSONL(v)
	if reader.Header().Run.Apply {
		options.Actuator = v
	}
	loop, err := tuner.New(options)
	if err != nil {
		return false, err
	}
	loopErr := loop.Run(ctx)
	v.progress.clear()
	if ctx.Err() != nil {
		return false, ctx.Err()
	}
	v.end(loopErr)
	v.source.drain()
	result := verified{
		Kind: "verify", File: path, Policy: options.Policy.Name(), Identical: v.first == nil,
		Samples: v.source.samples, Entries: v.entries, First: v.first,
		Trace: stateOf(reader.Stats(), v.source.damage),
	}
	if v.unproven != "" && v.first == nil {
		result.Unproven = &v.unproven
	}
	if err := printReplay(std.out, c.JSON, result); err != nil {
		return false, err
	}
	return result.First == nil && result.Unproven == nil && v.source.damage == nil, nil
}

func (v verified) String() string {
	if d := v.First; d != nil {
		return fmt.Sprintf("%s: differs at entry %d of the journal, at %v since boot: %s\n  recorded: %s\n  replayed: %s%s",
			v.File, d.Entry, d.At, d.What, d.Recorded, d.Replayed, v.Trace.text(v.File))
	}
	text := fmt.Sprintf("%s: identical: %s of the journal of %s came out byte for byte from %s",
		v.File, model.Count(v.Entries, "entry"), v.Policy, model.Count(v.Samples, "sample"))
	if v.Unproven != nil {
		text += fmt.Sprintf("\n%s: the rest is not proven: %s", v.File, *v.Unproven)
	}
	return text + v.Trace.text(v.File)
}

// errUnrecorded answers an Apply of which the trace does not tell what became.
var errUnrecorded = errors.New("the recorded run wrote nothing here")

// verifier is both ends of a loop: it yields the recorded samples, answers as
// the kernel did, and holds the journal against the recorded one.
type verifier struct {
	source   *stepSource
	progress *lateProgress
	// under tells that a step is being decided upon, replayed what its
	// journal is so far, and applied what was asked of the actuator.
	under    bool
	replayed [][]byte
	applied  model.Config

	entries  uint64
	first    *difference
	unproven string
}

// Next implements [tuner.Source]. It ends the loop where comparing ends.
func (v *verifier) Next(ctx context.Context) (model.Sample, error) {
	v.compare()
	if v.first != nil || v.unproven != "" {
		return model.Sample{}, errStopped
	}
	sample, err := v.source.Next(ctx)
	if err != nil {
		return sample, err
	}
	if lost := v.source.step.LostBefore; lost != (trace.Gap{}) {
		v.unproven = fmt.Sprintf("without %s and %s before %v since boot", model.Count(lost.Samples, "sample"), model.Count(lost.Others, "other record"), sample.At)
		v.source.samples--
		return model.Sample{}, errStopped
	}
	v.under = true
	v.progress.decided(v.source.samples, v.source.span)
	return sample, nil
}

// errStopped ends a loop that has nothing more to prove.
var errStopped = errors.New("verified as far as possible")

// Apply implements [tuner.Actuator].
func (v *verifier) Apply(_ context.Context, want model.Config) (model.Config, error) {
	v.applied = maps.Clone(want)
	outcome := v.source.step.Outcome
	if outcome == nil {
		return nil, errUnrecorded
	}
	return outcome.Result()
}

// Write takes a line of the replayed journal.
func (v *verifier) Write(line []byte) (int, error) {
	v.replayed = append(v.replayed, bytes.Clone(bytes.TrimSuffix(line, []byte("\n"))))
	return len(line), nil
}

// compare ends the step that was decided upon.
func (v *verifier) compare() {
	if !v.under {
		return
	}
	step := &v.source.step
	recorded, replayed, applied := step.Entries, v.replayed, v.applied
	v.under, v.replayed, v.applied = false, nil, nil
	for i := range max(len(recorded), len(replayed)) {
		switch {
		case i >= len(recorded) && !step.Complete:
			return
		case i >= len(recorded):
			v.differ("the recorded run has no such entry", nil, nil, replayed[i])
		case i >= len(replayed):
			v.differ("the replay has no such entry", nil, recorded[i], nil)
		case !sameEntry(recorded[i], replayed[i]):
			fields := differingFields(recorded[i], replayed[i])
			v.differ("not the same "+strings.Join(fields, ", "), fields, recorded[i], replayed[i])
		default:
			v.entries++
			continue
		}
		return
	}
	if !step.Complete && step.Outcome == nil {
		return
	}
	var asked model.Config
	if step.Outcome != nil {
		asked = step.Outcome.Asked()
	}
	if !maps.Equal(asked, applied) {
		v.differ("not the same settings were asked of the actuator", nil, configLine(asked), configLine(applied))
	}
}

func configLine(c model.Config) []byte {
	line, err := json.Marshal(c)
	if err != nil {
		return nil
	}
	return line
}

func (v *verifier) differ(what string, fields []string, recorded, replayed []byte) {
	if fields == nil {
		fields = []string{}
	}
	v.first = &difference{
		Entry: v.entries + 1, At: v.source.step.Sample.At, What: what, Fields: fields,
		Recorded: orNull(recorded), Replayed: orNull(replayed),
	}
}

func orNull(line []byte) json.RawMessage {
	if line == nil {
		return json.RawMessage("null")
	}
	return line
}

// end compares the last step, and holds how the loop ended against how the
// recorded run did: where that went on, there are more steps.
func (v *verifier) end(loopErr error) {
	v.compare()
	if v.first != nil || v.unproven != "" || loopErr == nil || v.source.damage != nil {
		return
	}
	if step, err := v.source.read(); err == nil {
		v.source.step = step
		v.differ(fmt.Sprintf("the replay ended here (%v), the recorded run went on", loopErr), nil, nil, nil)
	}
}

// differingFields names the fields of two journal entries that differ.
func differingFields(a, b []byte) []string {
	var x, y map[string]json.RawMessage
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return []string{"text"}
	}
	var fields []string
	for _, name := range slices.Sorted(maps.Keys(x)) {
		if !bytes.Equal(x[name], y[name]) {
			fields = append(fields, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(y)) {
		if _, ok := x[name]; !ok {
			fields = append(fields, name)
		}
	}
	if len(fields) == 0 {
		fields = []string{"order or spacing"}
	}
	return fields
}
