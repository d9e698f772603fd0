package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"autotune/actuate"
	"autotune/model"
	"autotune/probe"
	"autotune/probe/trace"
)

type recordCmd struct {
	Ifaces []string `arg:"" name:"iface" help:"Interfaces to record."`

	Output      string        `short:"o" help:"Write the trace to this file, which must not exist; - is standard output." required:"" placeholder:"FILE"`
	Netns       string        `help:"Network namespace, by name or path." placeholder:"NAME|PATH"`
	Interval    time.Duration `help:"Length of a window." default:"1s"`
	Duration    time.Duration `help:"End after this time; until stopped by default."`
	SampleEvery uint32        `help:"Follow the delays of one socket in so many." default:"1" name:"sample-every"`
	ProbeBudget probeBudget   `help:"Share of a CPU that the probes may take before they sample less, 1% by default; none: no limit." name:"probe-budget" placeholder:"PERCENT"`
	NoCounters  bool          `help:"Leave the hardware's counters of cycles and instructions to other profilers." name:"no-counters"`
	JSON        bool          `help:"One object per line." name:"json"`
	detailFlag
	eventFlags
	rotationFlags
}

// maxRecordSampleEvery is what the probes allow.
const maxRecordSampleEvery = 1 << 16

func (c *recordCmd) check(std streams) error {
	switch {
	case c.Interval < minWindow || c.Interval > maxWindow:
		return intervalError(c.Interval)
	case c.Duration < 0:
		return fmt.Errorf("--duration %v: leave it out to record until stopped", c.Duration)
	case c.SampleEvery < 1 || c.SampleEvery > maxRecordSampleEvery:
		return fmt.Errorf("--sample-every %d: from 1, which is every socket, to %d", c.SampleEvery, maxRecordSampleEvery)
	case c.Output == "-" && c.JSON:
		return errors.New("-o -: with --json standard output has the summary; name a file")
	case c.Output == "-" && isTerminal(std.out):
		return errors.New("-o -: a trace is not for a terminal; name a file, or pipe it on")
	}
	if err := c.eventFlags.check(); err != nil {
		return err
	}
	return c.rotationFlags.check(c.Output)
}

// Run implements the command. It writes nothing to the kernel.
func (c *recordCmd) Run(ctx context.Context, std streams) (err error) {
	if err := c.check(std); err != nil {
		return usageError(err)
	}
	host, err := actuate.Open(ctx, actuate.Options{
		Namespace: actuate.ParseNamespace(c.Netns), Ifaces: c.Ifaces, ReadOnly: true,
	})
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	napis, err := host.NAPIs(ctx)
	if len(napis) == 0 && err != nil {
		return openError(err)
	}
	// A policy that is tried on the trace later may ask who busy-polls.
	source, err := probe.Open(ctx, probe.Options{
		Interval: c.Interval, Inventory: host, Clocks: host, SampleEvery: c.SampleEvery, Contexts: true, Budget: float64(c.ProbeBudget),
		Events: c.options(), EpollEvents: c.Events,
		NoCounters: c.NoCounters,
	})
	if err != nil {
		return openError(err)
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	header, err := traceFacts{host: host, source: source, napis: napis, serving: servingCPUs(napis), interval: c.Interval}.header()
	if err != nil {
		return err
	}
	header.Histograms = c.detail()
	writer, err := c.create(header, std)
	if err != nil {
		return err
	}
	for _, m := range source.Missing() {
		fmt.Fprintf(std.err, "without %s: %s (%v)\n", m.Name, m.Lost, m.Err)
	}
	fmt.Fprintf(std.err, "recording %s: %s, windows of %v; Ctrl-C ends it\n", strings.Join(c.Ifaces, " "), model.Count(len(napis), "queue"), c.Interval)
	ready()

	p := progress{w: std.err, shown: isTerminal(std.err)}
	t := newRunTrace(c.Output, writer, header, source, func(err error) {
		p.clear()
		fmt.Fprintf(std.err, "the trace has a gap, the recording goes on: %v\n", err)
	})
	t.watch.host = host
	var events *recordedEvents
	if c.Events {
		events = new(recordedEvents)
		t.events = func() []model.Events { return events.count(source.Events()) }
	}
	recorded, err := c.record(ctx, t, &p)
	recorded.Events = events
	p.clear()
	written, closeErr := t.close()
	if c.JSON {
		err = errors.Join(err, printJSON(std.out, recordingLine{Kind: "recording", traceFields: traceFields(written), recorded: recorded}))
	} else {
		fmt.Fprintf(std.err, "%v; %v recorded, %s lost by the probes\n", written, recorded.Span.Round(time.Millisecond), model.Count(recorded.LostEvents, "event"))
		if events != nil {
			fmt.Fprintln(std.err, events)
		}
	}
	if closeErr != nil && err == nil {
		err = fmt.Errorf("the trace is not whole: %w", closeErr)
	}
	return err
}

func (c *recordCmd) create(header trace.Header, std streams) (traceWriter, error) {
	if c.Output == "-" {
		return trace.NewWriter(std.out, header, trace.Options{})
	}
	writer, err := createTrace(c.Output, header, trace.Options{}, c.rotation())
	if err != nil {
		return nil, usageError(fmt.Errorf("-o: %w", createError(firstFile(c.Output, c.rotation()), err)))
	}
	return writer, nil
}

// recorded is what was seen while recording.
type recorded struct {
	Span time.Duration `json:"span_ns"`
	// LostEvents counts what the probes dropped.
	LostEvents uint64 `json:"lost_events"`
	// Events is nil without --events.
	Events *recordedEvents `json:"events"`
}

type traceFields traceLine

type recordingLine struct {
	Kind string `json:"kind"` // "recording"
	traceFields
	recorded
}

// record passes samples on to the trace until the context or the duration ends.
func (c *recordCmd) record(ctx context.Context, t *runTrace, p *progress) (r recorded, err error) {
	// Windows are a little shorter or longer than the interval.
	for c.Duration == 0 || r.Span < c.Duration-c.Interval/2 {
		sample, err := t.Next(ctx)
		if ctx.Err() != nil {
			return r, nil
		}
		if err != nil {
			return r, fmt.Errorf("read sample: %w", err)
		}
		r.Span += sample.Span
		r.LostEvents += sample.Lost
		stats := t.writer.Stats()
		p.show(fmt.Sprintf("%v  %s  %s written  %s lost  %s not written", r.Span.Round(time.Second),
			model.Count(stats.Written.Samples+stats.Pending.Samples, "sample"), byteText(stats.Bytes),
			model.Count(r.LostEvents, "event"), model.Count(stats.Lost.Samples, "sample")))
	}
	return r, nil
}

// progress is a line on a terminal that is written over.
type progress struct {
	w     io.Writer
	shown bool
	// at is when it was written last.
	at   time.Time
	used bool
}

// progressEvery is how often the line changes.
const progressEvery = 250 * time.Millisecond

func (p *progress) show(line string) {
	if now := time.Now(); p.shown && now.Sub(p.at) >= progressEvery {
		fmt.Fprintf(p.w, "\r%s\x1b[K", line)
		p.at, p.used = now, true
	}
}

func (p *progress) clear() {
	if p.used {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.used = false
	}
}
