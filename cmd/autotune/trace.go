package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"autotune/model"
	"autotune/probe/trace"
)

// traceCmd groups what is done to traces after they were recorded.
type traceCmd struct {
	Info      traceInfoCmd      `cmd:"" help:"What traces hold, and whether they are whole."`
	Cut       traceCutCmd       `cmd:"" help:"Copy a span of time."`
	Merge     traceMergeCmd     `cmd:"" help:"Join traces of one boot of one host, in the order of their times."`
	Anonymize traceAnonymizeCmd `cmd:"" help:"Replace names of the host, of processes and of what else tells of people and places."`
	Import    traceImportCmd    `cmd:"" help:"Make a trace of a series of softnet or sar counters."`
}

// traceInput is one recording, in one file or in all its parts.
type traceInput struct {
	Files   []string `arg:"" name:"trace" help:"A trace, or the parts of one recording in their order."`
	Salvage bool     `help:"Skip damaged frames and use the rest."`
}

func (in traceInput) open() (*trace.Reader, error) {
	return trace.OpenParts(in.Files, trace.ReaderOptions{AllowTruncated: true, Salvage: in.Salvage})
}

// edit returns the header with what a salvage did to it.
func (in traceInput) edit(h trace.Header) trace.Header {
	if in.Salvage {
		h.Edits = append(h.Edits[:len(h.Edits):len(h.Edits)], trace.Edit{Op: trace.EditSalvage, Detail: "damaged frames may be missing"})
	}
	return h
}

func (in traceInput) name() string { return strings.Join(in.Files, " ") }

// readError says how to get at the rest of a damaged trace.
func (in traceInput) readError(err error) error {
	if damaged(err) && !in.Salvage {
		return fmt.Errorf("%w; --salvage skips what is damaged", err)
	}
	return err
}

// traceOutput is the trace that a command makes.
type traceOutput struct {
	Output string `short:"o" help:"Write to this file, which must not exist." required:"" placeholder:"FILE"`
}

func (o traceOutput) create(h trace.Header) (*trace.Writer, error) {
	w, err := trace.Create(o.Output, h, trace.Options{})
	if err != nil {
		return nil, usageError(fmt.Errorf("-o: %w", createError(o.Output, err)))
	}
	return w, nil
}

// discard removes a file that could not be finished, unless it was there
// before.
func (o traceOutput) discard(err error) error {
	if err == nil || errors.Is(err, os.ErrExist) {
		return err
	}
	var coded *exitError
	if errors.As(err, &coded) && coded.code == exitUsage {
		return err
	}
	if removeErr := os.Remove(o.Output); removeErr != nil && !errors.Is(removeErr, os.ErrNotExist) {
		return errors.Join(err, removeErr)
	}
	return err
}

// traceMade is what a command made, in its output.
type traceMade struct {
	Kind    string `json:"kind"` // "trace_made"
	File    string `json:"file"`
	Samples uint64 `json:"samples"`
	// Records are all others.
	Records uint64 `json:"records"`
	Bytes   int64  `json:"bytes"`
	// Skipped are the places in the input that could not be read.
	Skipped int `json:"skipped"`
}

func (m traceMade) String() string {
	text := fmt.Sprintf("%s: %s and %s in %s", m.File, model.Count(m.Samples, "sample"), model.Count(m.Records, "other record"), byteText(m.Bytes))
	if m.Skipped > 0 {
		text += fmt.Sprintf("; skipped %s", model.Count(m.Skipped, "damaged place"))
	}
	return text
}

func (o traceOutput) made(w trace.WriterStats, r trace.Stats) traceMade {
	return traceMade{
		Kind: "trace_made", File: o.Output, Samples: w.Written.Samples, Records: w.Written.Others, Bytes: w.Bytes, Skipped: len(r.Damaged),
	}
}

// lateProgress shows how far a reading is once it takes longer than people
// wait without a sign.
type lateProgress struct {
	progress
	what  string
	begun time.Time
}

const progressAfter = 2 * time.Second

func newLateProgress(w io.Writer, what string) *lateProgress {
	return &lateProgress{progress: progress{w: w, shown: isTerminal(w)}, what: what, begun: time.Now()}
}

func (p *lateProgress) read(s trace.Stats) {
	if p.shown && s.Samples%64 == 0 && time.Since(p.begun) > progressAfter {
		p.show(fmt.Sprintf("%s: %s, %s of text", p.what, model.Count(s.Samples, "sample"), byteText(s.Bytes)))
	}
}

// decided shows how much of a trace was decided upon again.
func (p *lateProgress) decided(samples uint64, span time.Duration) {
	if p.shown && samples%64 == 0 && time.Since(p.begun) > progressAfter {
		p.show(fmt.Sprintf("%s: %s, %v", p.what, model.Count(samples, "sample"), span.Round(time.Second)))
	}
}
