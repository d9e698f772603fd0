package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"autotune/model"
	"autotune/model/policy"
	"autotune/probe/trace"
	"autotune/tuner"
)

// runTrace writes what a session sees, writes and decides to a trace. Once it
// is open, none of its failures reaches the run.
type runTrace struct {
	path   string
	writer traceWriter
	tee    *trace.Tee
	watch  conditionsWatch
	// events returns those of the last sample's window; nil where none are
	// recorded.
	events func() []model.Events
}

// detailFlag says how exact the histograms of a trace are.
type detailFlag struct {
	Histograms *trace.Detail `help:"How exact histograms are in the trace, and then for what decides: rounded (the default: three significant bits, sums unchanged, less than half the size) or exact." placeholder:"rounded|exact"`
}

func (f detailFlag) detail() trace.Detail {
	if f.Histograms == nil {
		return trace.DetailRounded
	}
	return *f.Histograms
}

// newRunTrace returns the trace of a source, which is being written by w. What it
// yields is what it records.
func newRunTrace(path string, w traceWriter, header trace.Header, source trace.Source, report func(error)) *runTrace {
	if header.Histograms == trace.DetailRounded {
		source = trace.NewRounding(source)
	}
	return &runTrace{
		path: path, writer: w, tee: trace.NewTee(source, w, report),
		watch: conditionsWatch{last: header.Conditions, at: header.StartedAt},
	}
}

// Next returns the next sample of the source.
func (t *runTrace) Next(ctx context.Context) (model.Sample, error) {
	sample, err := t.tee.Next(ctx)
	if err != nil {
		return sample, err
	}
	if now, changed := t.watch.changed(sample.At); changed {
		t.tee.WriteConditions(sample.At, now)
	}
	if t.events != nil {
		for _, e := range t.events() {
			t.tee.WriteEvents(e)
		}
	}
	return sample, nil
}

// traceWait is how long a write of the trace may hold up the loop.
const traceWait = 2 * time.Second

// openRunTrace creates the file, which must not exist, and puts the trace
// between the loop of the options and its ends.
func openRunTrace(path string, rotation trace.Rotation, header trace.Header, o *tuner.Options, warn io.Writer) (*runTrace, error) {
	writer, err := createTrace(path, header, trace.Options{GiveUpAfter: traceWait}, rotation)
	if err != nil {
		return nil, usageError(fmt.Errorf("--trace: %w", createError(firstFile(path, rotation), err)))
	}
	t := newRunTrace(path, writer, header, o.Source, func(err error) {
		fmt.Fprintf(warn, "the trace has a gap, the run goes on: %v\n", err)
	})
	o.Source = t
	if o.Actuator != nil {
		o.Actuator = t.tee.Actuator(o.Actuator)
	}
	own := &journals{tuner.NewJSONL(traceJournal{t.tee})}
	if o.Journal != nil {
		*own = append(*own, o.Journal)
	}
	o.Journal = own
	return t, nil
}

// firstFile is the file that is made first.
func firstFile(path string, rotation trace.Rotation) string {
	if rotation.Enabled() {
		return trace.PartPath(path, 0)
	}
	return path
}

// createError says what to do about a file that is there.
func createError(path string, err error) error {
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%s exists and is not overwritten; name another file, or remove it", path)
	}
	return err
}

// traceJournal takes the lines of a journal; each Write is one.
type traceJournal struct{ tee *trace.Tee }

// Write implements [io.Writer] and never fails.
func (j traceJournal) Write(line []byte) (int, error) {
	j.tee.WriteEntry(json.RawMessage(line[:len(line)-1]))
	return len(line), nil
}

// tracedRun is the run as the header of its trace has it. Policy is by its full
// name, which does not depend on the defaults of a later version.
func tracedRun(o tuner.Options, originals model.Config) (*trace.Run, error) {
	guards, err := json.Marshal(o.Guards())
	if err != nil {
		return nil, fmt.Errorf("encode the options of the guards: %w", err)
	}
	return &trace.Run{
		Policy:    o.Policy.Name(),
		Apply:     o.Actuator != nil,
		Objective: o.Objective,
		Bounds:    o.Bounds,
		Originals: trace.QueueSettingsOf(originals),
		Queues:    append([]model.Queue{}, o.Queues...),
		Guards:    guards,
	}, nil
}

// tracedOptions are the options of the loop that decides as the recorded run
// did, or for a mere recording the usual ones. The policy is that of spec where
// it is not empty. Source, actuator and journal are the caller's.
func tracedOptions(h trace.Header, spec string) (o tuner.Options, err error) {
	o = tuner.Options{CPUs: tracedCPUs(h), Objective: model.Objective{SLO: defaultSLO, Quantile: defaultQuantile}}
	if h.Run != nil {
		o.Objective, o.Bounds, o.Queues = h.Run.Objective, h.Run.Bounds, h.Run.Queues
	}
	if h.Run != nil && h.Run.Guards != nil {
		var guards tuner.GuardOptions
		if err := json.Unmarshal(h.Run.Guards, &guards); err != nil {
			return o, fmt.Errorf("the recorded options of the guards: %w", err)
		}
		o.SetGuards(guards)
	}
	switch {
	case spec != "":
		o.Policy, err = policy.Parse(spec)
	case h.Run == nil:
		err = errors.New("it is a mere recording: say what is to decide with --policy")
	default:
		o.Policy, err = policy.Parse(h.Run.Policy)
	}
	return o, err
}

// tracedCPUs tells which CPUs polled each queue.
func tracedCPUs(h trace.Header) map[model.Queue][]int {
	serving := make(map[model.Queue][]int)
	for _, d := range h.Conditions.Devices {
		for _, n := range d.NAPIs {
			if n.CPUs != nil {
				serving[n.Queue] = n.CPUs
			}
		}
	}
	return serving
}

// traceLine is what became of a trace, in the output of run and record.
type traceLine struct {
	Kind string `json:"kind"` // "trace_written"
	File string `json:"file"`
	// Files are the files that there are, more than one where the recording
	// went on in another; RemovedFiles made room for them.
	Files        []string `json:"files"`
	RemovedFiles int      `json:"removed_files"`
	// Samples and Records were written, the latter being all others.
	Samples uint64 `json:"samples"`
	Records uint64 `json:"records"`
	Bytes   int64  `json:"bytes"`
	// FailedWrites is how often writing failed, and Error the last reason;
	// what that cost is in LostSamples and LostRecords.
	FailedWrites uint64  `json:"failed_writes"`
	LostSamples  uint64  `json:"lost_samples"`
	LostRecords  uint64  `json:"lost_records"`
	Error        *string `json:"error"`
}

func (t *runTrace) close() (traceLine, error) {
	closeErr := t.writer.Close()
	stats := t.writer.Stats()
	failed, err := t.tee.Failed()
	if closeErr != nil {
		failed++
		err = errors.Join(err, closeErr)
	}
	files, removed := traceFiles(t.path, t.writer)
	line := traceLine{
		Kind: "trace_written", File: t.path, Files: files, RemovedFiles: removed,
		Samples: stats.Written.Samples, Records: stats.Written.Others, Bytes: stats.Bytes,
		FailedWrites: failed, LostSamples: stats.Lost.Samples, LostRecords: stats.Lost.Others,
	}
	if err != nil {
		text := err.Error()
		line.Error = &text
	}
	return line, err
}

func (l traceLine) String() string {
	text := fmt.Sprintf("%s: %s and %s in %s", l.File, model.Count(l.Samples, "sample"), model.Count(l.Records, "other record"), byteText(l.Bytes))
	if len(l.Files)+l.RemovedFiles > 1 {
		text += fmt.Sprintf(", in %d files up to %s", len(l.Files), l.Files[len(l.Files)-1])
	}
	if l.RemovedFiles > 0 {
		text += fmt.Sprintf("; removed %s", model.Count(l.RemovedFiles, "older file"))
	}
	if l.FailedWrites > 0 {
		text += fmt.Sprintf("; %s failed, which lost %s and %s: %s",
			model.Count(l.FailedWrites, "write"), model.Count(l.LostSamples, "sample"), model.Count(l.LostRecords, "other record"), *l.Error)
	}
	return text
}

func byteText(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}

// finish closes the trace and says what became of it. The run's outcome does
// not depend on it.
func (t *runTrace) finish(std streams, asJSON bool) error {
	line, _ := t.close()
	if asJSON {
		return printJSON(std.out, line)
	}
	fmt.Fprintln(std.err, line)
	return nil
}
