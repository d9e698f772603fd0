package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"autotune/model"
	"autotune/probe/trace"
)

type traceInfoCmd struct {
	Files   []string `arg:"" name:"trace" help:"Traces, each by itself."`
	Salvage bool     `help:"Skip damaged frames and count the rest."`
	JSON    bool     `help:"One object per line." name:"json"`
}

// traceInfo is what a trace holds, in the output of trace info --json.
type traceInfo struct {
	Kind          string        `json:"kind"` // "trace_info"
	File          string        `json:"file"`
	SchemaVersion int           `json:"schema_version"`
	Version       string        `json:"autotune_version"`
	Host          string        `json:"host"`
	Linux         string        `json:"kernel"`
	Machine       string        `json:"machine"`
	Started       *time.Time    `json:"started_wall"`
	Interval      time.Duration `json:"interval_ns"`
	Histograms    trace.Detail  `json:"histograms"`
	// Begin and End are since boot; null without samples.
	Begin *time.Duration `json:"begin_ns"`
	End   *time.Duration `json:"end_ns"`
	Span  time.Duration  `json:"span_ns"`
	// Samples, Applies, Entries and Changes of conditions are the records.
	Samples   uint64 `json:"samples"`
	Applies   uint64 `json:"applies"`
	Entries   uint64 `json:"journal_entries"`
	Changes   uint64 `json:"conditions_changes"`
	Frames    int    `json:"frames"`
	TextBytes int64  `json:"text_bytes"`
	// LostEvents were dropped by the probes.
	LostEvents uint64 `json:"lost_events"`
	Processes  int    `json:"processes"`
	// Events is null where no single events were recorded.
	Events     *traceInfoEvents `json:"events"`
	Queues     []traceInfoQueue `json:"queues"`
	Probes     []trace.Probe    `json:"probes"`
	Conditions trace.Conditions `json:"conditions"`
	Policy     *string          `json:"recorded_policy"`
	Applied    *bool            `json:"recorded_apply"`
	Part       *trace.Part      `json:"part"`
	Edits      []trace.Edit     `json:"edits"`
	Skipped    []string         `json:"skipped"`
	Missing    trace.Gap        `json:"missing"`
	Trace      traceState       `json:"trace"`
}

// traceInfoEvents counts single events: Windows of the samples have them, which
// last Span; Lost found no room.
type traceInfoEvents struct {
	Windows  uint64        `json:"windows"`
	Span     time.Duration `json:"span_ns"`
	Polls    uint64        `json:"polls"`
	Waits    uint64        `json:"waits"`
	Requests uint64        `json:"requests"`
	Lost     uint64        `json:"lost"`
}

func (e *traceInfoEvents) String() string {
	return fmt.Sprintf("single events in %s, %v in all: %s, %s of epoll_wait, %s; %d lost",
		model.Count(e.Windows, "window"), e.Span.Round(time.Millisecond), model.Count(e.Polls, "poll"), model.Count(e.Waits, "return"), model.Count(e.Requests, "request"), e.Lost)
}

type traceInfoQueue struct {
	Queue   model.Queue `json:"queue"`
	Ifname  *string     `json:"ifname"`
	Samples uint64      `json:"samples"`
	Polls   uint64      `json:"polls"`
	Packets uint64      `json:"packets"`
	Delays  uint64      `json:"delay_samples"`
	Changes uint64      `json:"settings_changes"`
}

// Run implements the command. It exits with 1 where a trace is damaged.
func (c *traceInfoCmd) Run(ctx context.Context, std streams) error {
	failed := false
	for _, path := range c.Files {
		r, err := trace.Open(path, trace.ReaderOptions{AllowTruncated: true, Salvage: c.Salvage})
		if err != nil {
			return usageError(err)
		}
		p := newLateProgress(std.err, "reading "+path)
		info := infoOf(path, r, trace.Summarize(ctx, r, p.read))
		p.clear()
		if err := ctx.Err(); err != nil {
			return errors.Join(err, r.Close())
		}
		if err := errors.Join(r.Close(), c.print(std.out, info)); err != nil {
			return err
		}
		failed = failed || info.Trace.Damage != nil
	}
	if failed {
		return &exitError{code: exitFailed}
	}
	return nil
}

func (c *traceInfoCmd) print(w io.Writer, info traceInfo) error {
	if c.JSON {
		return printJSON(w, info)
	}
	return info.write(w)
}

func infoOf(path string, r *trace.Reader, s trace.Summary) traceInfo {
	h := s.Header
	info := traceInfo{
		Kind: "trace_info", File: path, SchemaVersion: r.SchemaVersion(), Version: h.AutotuneVersion,
		Host: h.Host, Linux: h.Kernel, Machine: h.Machine, Started: h.StartedWall, Interval: h.Interval, Histograms: h.Histograms,
		Span: s.Span, Samples: s.Stats.Samples, Applies: s.Applies, Entries: s.Entries, Changes: s.Conditions,
		Frames: s.Stats.Frames, TextBytes: s.Stats.Bytes, LostEvents: s.LostEvents, Processes: s.Processes,
		Queues: []traceInfoQueue{}, Probes: h.Probes, Conditions: h.Conditions,
		Part: h.Part, Edits: h.Edits, Skipped: []string{}, Missing: s.Stats.Missing, Trace: stateOf(s.Stats, s.Damage),
	}
	if s.Stats.Samples > 0 {
		info.Begin, info.End = &s.Begin, &s.Last
	}
	if s.Events.Windows > 0 {
		events := traceInfoEvents(s.Events)
		info.Events = &events
	}
	if h.Run != nil {
		info.Policy, info.Applied = &h.Run.Policy, &h.Run.Apply
	}
	names := tracedIfnames(h)
	for _, q := range s.Queues {
		line := traceInfoQueue{
			Queue: q.Queue, Samples: q.Samples, Polls: q.Polls.Polls, Packets: q.Polls.Packets, Delays: q.Delays, Changes: q.Changes,
		}
		if name, ok := names[deviceOf(q.Queue)]; ok {
			line.Ifname = &name
		}
		info.Queues = append(info.Queues, line)
	}
	for _, damage := range s.Stats.Damaged {
		info.Skipped = append(info.Skipped, damage.Error())
	}
	return info
}

// tracedDevice identifies a device of a trace.
type tracedDevice struct {
	netns   uint64
	ifindex int
}

func deviceOf(q model.Queue) tracedDevice { return tracedDevice{q.Netns, q.Ifindex} }

func tracedIfnames(h trace.Header) map[tracedDevice]string {
	names := map[tracedDevice]string{}
	for _, d := range h.Conditions.Devices {
		names[tracedDevice{d.Netns, d.Ifindex}] = d.Ifname
	}
	return names
}

func (i traceInfo) write(w io.Writer) error {
	head := replayHead{File: i.File, Host: i.Host, Kernel: i.Linux, Started: i.Started, Recorded: i.Policy, Applied: i.Applied}
	fmt.Fprintln(w, head)
	fmt.Fprintf(w, "  format version %d, written by autotune %s, %s of text in %s, histograms %v\n", i.SchemaVersion, i.Version, byteText(i.TextBytes), model.Count(i.Frames, "frame"), i.Histograms)
	if i.Part != nil {
		fmt.Fprintf(w, "  part %d of recording %s, after %s\n", i.Part.Number, i.Part.Recording, model.Count(i.Part.Samples, "sample"))
	}
	for _, e := range i.Edits {
		fmt.Fprintf(w, "  %s: %s\n", e.Op, e.Detail)
	}
	if i.Begin != nil {
		fmt.Fprintf(w, "  %s of about %v, %v in all, from %v to %v since boot\n",
			model.Count(i.Samples, "sample"), i.Interval, i.Span.Round(time.Millisecond), i.Begin.Round(time.Millisecond), i.End.Round(time.Millisecond))
	}
	if i.Applies+i.Entries > 0 {
		fmt.Fprintf(w, "  %s, settings written after %s\n", model.Count(i.Entries, "decision"), model.Count(i.Applies, "sample"))
	}
	fmt.Fprintf(w, "  %s received; %s lost by the probes; conditions changed %s\n",
		model.Count(i.Processes, "process"), model.Count(i.LostEvents, "event"), model.Count(i.Changes, "time"))
	if i.Events != nil {
		fmt.Fprintf(w, "  %v\n", i.Events)
	}
	if len(i.Queues) > 0 {
		t := newTable(w, "  DEVICE", "QUEUE", "SAMPLES", "POLLS", "PACKETS", "DELAYS", "SETTINGS CHANGED")
		for _, q := range i.Queues {
			t.row("  "+orDash(q.Ifname), fmt.Sprint(q.Queue.Index), fmt.Sprint(q.Samples), fmt.Sprint(q.Polls), fmt.Sprint(q.Packets), fmt.Sprint(q.Delays), fmt.Sprint(q.Changes))
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	var works []string
	for _, p := range i.Probes {
		if p.State == model.FindingOK {
			works = append(works, p.Name)
			continue
		}
		fmt.Fprintf(w, "  %s %s: %s\n", p.Name, p.State, p.Detail)
	}
	if len(works) > 0 {
		fmt.Fprintf(w, "  probes: %s\n", strings.Join(works, ", "))
	}
	for _, s := range i.Skipped {
		fmt.Fprintf(w, "  skipped: %s\n", s)
	}
	if i.Missing != (trace.Gap{}) {
		fmt.Fprintf(w, "  missing with it: %s and %s\n", model.Count(i.Missing.Samples, "sample"), model.Count(i.Missing.Others, "other record"))
	}
	_, err := fmt.Fprint(w, strings.TrimPrefix(i.Trace.text(i.File)+"\n", "\n"))
	return err
}
