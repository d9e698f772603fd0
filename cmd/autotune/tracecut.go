package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"autotune/probe/trace"
)

type traceCutCmd struct {
	traceInput
	traceOutput

	From moment `help:"Begin after this time: 90s since the recording began, or a wall-clock time as 2026-03-01T12:00:00Z." placeholder:"TIME"`
	To   moment `help:"End at this time; what is written the same way." placeholder:"TIME"`
	JSON bool   `help:"One object per line." name:"json"`
}

// moment is a time in a recording.
type moment struct {
	set   bool
	after time.Duration
	wall  time.Time
}

// UnmarshalText reads a duration since the beginning, or a time of day with
// date and zone.
func (m *moment) UnmarshalText(text []byte) error {
	m.set = true
	if d, err := time.ParseDuration(string(text)); err == nil {
		if d < 0 {
			return fmt.Errorf("%q: a time since the recording began is not negative", text)
		}
		m.after = d
		return nil
	}
	wall, err := time.Parse(time.RFC3339, string(text))
	if err != nil {
		return fmt.Errorf("%q is neither a duration since the recording began (90s, 1h30m) nor a time (2026-03-01T12:00:00Z)", text)
	}
	m.wall = wall
	return nil
}

// at is the moment since boot.
func (m moment) at(h trace.Header, unset time.Duration) (time.Duration, error) {
	switch {
	case !m.set:
		return unset, nil
	case m.wall.IsZero():
		return h.StartedAt + m.after, nil
	case h.StartedWall == nil:
		return 0, errors.New("the trace does not say at what time of day it was recorded: use a duration since it began")
	}
	return h.StartedAt + m.wall.Sub(*h.StartedWall), nil
}

// Run implements the command.
func (c *traceCutCmd) Run(ctx context.Context, std streams) (err error) {
	if !c.From.set && !c.To.set {
		return usageError(errors.New("say what to keep with --from, --to, or both"))
	}
	r, err := c.open()
	if err != nil {
		return usageError(err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	from, err := c.From.at(r.Header(), math.MinInt64)
	if err != nil {
		return usageError(fmt.Errorf("--from: %w", err))
	}
	to, err := c.To.at(r.Header(), math.MaxInt64)
	if err != nil {
		return usageError(fmt.Errorf("--to: %w", err))
	}
	if from >= to {
		return usageError(errors.New("--from is not before --to"))
	}
	p := newLateProgress(std.err, "cutting "+c.name())
	stats, err := trace.Cut(ctx, r, func(h trace.Header) (*trace.Writer, error) { return c.create(c.edit(h)) }, from, to, p.read)
	p.clear()
	if errors.Is(err, trace.ErrNoSample) {
		return usageError(fmt.Errorf("%s: %w between these times; autotune trace info says what there is", c.name(), err))
	}
	if err != nil {
		return c.discard(c.readError(err))
	}
	return printReplay(std.out, c.JSON, c.made(stats, r.Stats()))
}
