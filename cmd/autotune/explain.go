package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"autotune/model"
	"autotune/probe/trace"
	"autotune/tuner"
)

type explainCmd struct {
	File  string `arg:"" name:"journal" help:"journal.jsonl of a state directory, or a trace."`
	At    string `help:"The last decision until then: time since boot (512.3s), or of day (15:04:05, of the last run; RFC 3339 with a date). By default the last that moved something." placeholder:"T"`
	Queue string `help:"Which queue: its index, or netns:ifindex:index. By default any." placeholder:"Q"`
	JSON  bool   `help:"One object." name:"json"`
}

// decisionAt is a decision with the bytes it was read from, and the run that
// made it.
type decisionAt struct {
	entry tuner.Entry
	raw   json.RawMessage
	run   *journalHead
	// runRaw is the run's line; null where the file has none.
	runRaw json.RawMessage
	line   int
}

// errNoDecision tells that a file has no decision that was asked for.
var errNoDecision = errors.New("no such decision")

// Run implements the command.
func (c *explainCmd) Run(ctx context.Context, std streams) error {
	match, err := c.matcher()
	if err != nil {
		return usageError(err)
	}
	all, err := c.read(ctx)
	if err != nil {
		return usageError(err)
	}
	i, err := c.choose(all, match)
	if err != nil {
		return usageError(err)
	}
	e := explain(all, i)
	if c.JSON {
		return printJSON(std.out, e.line(c.File))
	}
	_, err = io.WriteString(std.out, e.text())
	return err
}

// matcher tells whether a queue was asked for.
func (c *explainCmd) matcher() (func(model.Queue) bool, error) {
	if c.Queue == "" {
		return func(model.Queue) bool { return true }, nil
	}
	if n, err := strconv.Atoi(c.Queue); err == nil && n >= 0 {
		return func(q model.Queue) bool { return q.Index == n }, nil
	}
	var want model.Queue
	if err := want.UnmarshalText([]byte(c.Queue)); err != nil {
		return nil, fmt.Errorf("--queue %s: write its index, for example 0, or netns:ifindex:index", c.Queue)
	}
	return func(q model.Queue) bool { return q == want }, nil
}

// read returns the decisions of a journal or trace, in order.
func (c *explainCmd) read(ctx context.Context) ([]decisionAt, error) {
	f, err := os.Open(c.File)
	if err != nil {
		return nil, fmt.Errorf("read the journal: %w", err)
	}
	defer func() { _ = f.Close() }()
	r := bufio.NewReader(f)
	magic, err := r.Peek(4)
	if err == nil && string(magic) == "\x28\xb5\x2f\xfd" {
		return c.readTrace(ctx)
	}
	return c.readJournal(r)
}

func (c *explainCmd) readTrace(ctx context.Context) (out []decisionAt, err error) {
	reader, err := openTrace(c.File)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	header := reader.Header()
	var head *journalHead
	var raw json.RawMessage
	if header.Run != nil {
		head = &journalHead{Kind: "run", Policy: header.Run.Policy, Interval: header.Interval}
		if raw, err = json.Marshal(header.Run); err != nil {
			return nil, fmt.Errorf("%s: encode its run: %w", c.File, err)
		}
		if header.StartedWall != nil {
			head.Started = *header.StartedWall
		}
	}
	for n := 1; ; n++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		record, err := reader.Record()
		var cut *trace.TruncatedError
		if errors.Is(err, io.EOF) || errors.As(err, &cut) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.File, err)
		}
		if record.Kind != trace.KindJournal {
			continue
		}
		d := decisionAt{raw: record.Entry, run: head, runRaw: raw, line: n}
		if err := json.Unmarshal(record.Entry, &d.entry); err != nil {
			return nil, fmt.Errorf("%s: a decision in it cannot be read: %w", c.File, err)
		}
		out = append(out, d)
	}
	return out, nil
}

// maxJournalLine bounds a line of a journal.
const maxJournalLine = 1 << 20

func (c *explainCmd) readJournal(r io.Reader) ([]decisionAt, error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(make([]byte, 0, 1<<16), maxJournalLine)
	var out []decisionAt
	var run *journalHead
	var runRaw json.RawMessage
	var broken error
	for n := 1; lines.Scan(); n++ {
		if broken != nil {
			return nil, broken
		}
		line := lines.Bytes()
		if len(strings.TrimSpace(string(line))) == 0 {
			continue
		}
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := json.Unmarshal(line, &kind); err != nil {
			// A run that was killed may have left half a line at the end.
			broken = fmt.Errorf("%s:%d: not a line of a journal: %w", c.File, n, err)
			continue
		}
		switch kind.Kind {
		case "run":
			var head journalHead
			if err := json.Unmarshal(line, &head); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", c.File, n, err)
			}
			run, runRaw = &head, json.RawMessage(strings.Clone(string(line)))
		case "decision":
			d := decisionAt{raw: json.RawMessage(strings.Clone(string(line))), run: run, runRaw: runRaw, line: n}
			if err := json.Unmarshal(line, &d.entry); err != nil {
				return nil, fmt.Errorf("%s:%d: %w", c.File, n, err)
			}
			out = append(out, d)
		default: // what else a journal may hold is not about decisions
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", c.File, err)
	}
	if broken != nil && len(out) == 0 {
		return nil, broken
	}
	return out, nil
}

// choose returns the index of the decision that was asked for.
func (c *explainCmd) choose(all []decisionAt, match func(model.Queue) bool) (int, error) {
	if len(all) == 0 {
		return 0, fmt.Errorf("%s: %w: it has none at all", c.File, errNoDecision)
	}
	var until func(*decisionAt) bool
	if c.At != "" {
		var err error
		if until, err = parseAt(c.At, all); err != nil {
			return 0, err
		}
	}
	last, lastMove, known := -1, -1, map[model.Queue]bool{}
	var queues []string
	for i := range all {
		e := &all[i].entry
		if !known[e.Queue] {
			known[e.Queue] = true
			queues = append(queues, e.Queue.String())
		}
		if !match(e.Queue) || until != nil && !until(&all[i]) {
			continue
		}
		last = i
		if e.Verdict != model.VerdictHeld {
			lastMove = i
		}
	}
	switch {
	case last < 0 && c.At != "":
		return 0, fmt.Errorf("%s: %w: none until %s (the first is at %v since boot, the last at %v, on %s; a time of day is written 15:04:05)",
			c.File, errNoDecision, c.At, all[0].entry.At.Round(time.Millisecond), all[len(all)-1].entry.At.Round(time.Millisecond), strings.Join(queues, ", "))
	case last < 0:
		return 0, fmt.Errorf("%s: %w: none on queue %s (there are %s)", c.File, errNoDecision, c.Queue, strings.Join(queues, ", "))
	case c.At == "" && lastMove >= 0:
		return lastMove, nil
	}
	return last, nil
}

// parseAt reads a time, and returns whether a decision is not later.
func parseAt(text string, all []decisionAt) (func(*decisionAt) bool, error) {
	bad := fmt.Errorf("--at %s: write time since boot as 512.3s, or of day as 15:04:05 or 2006-01-02T15:04:05Z", text)
	if d, err := time.ParseDuration(text); err == nil {
		if d < 0 {
			return nil, bad
		}
		return func(e *decisionAt) bool { return e.entry.At <= d }, nil
	}
	wall, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		clock, err := time.Parse("15:04:05", text)
		if err != nil {
			return nil, bad
		}
		last := &all[len(all)-1]
		if last.run == nil || last.run.BootTime.IsZero() {
			return nil, fmt.Errorf("--at %s: the file does not say when the host was booted; write time since boot, as 512.3s", text)
		}
		// The day of the last decision, or the one before where that would be
		// in its future.
		end := last.wall().Local()
		wall = time.Date(end.Year(), end.Month(), end.Day(), clock.Hour(), clock.Minute(), clock.Second(), clock.Nanosecond(), time.Local)
		if wall.After(end.Add(time.Second)) {
			wall = wall.AddDate(0, 0, -1)
		}
		// People read seconds off a line that has milliseconds.
		if !strings.Contains(text, ".") {
			wall = wall.Add(time.Second - time.Nanosecond)
		}
	}
	return func(e *decisionAt) bool {
		return e.run != nil && !e.run.BootTime.IsZero() && !e.wall().After(wall)
	}, nil
}

// wall is when the window of the decision ended; the run must be known.
func (d *decisionAt) wall() time.Time { return d.run.BootTime.Add(d.entry.At) }
