package main

import (
	"context"
	"errors"
	"fmt"

	"autotune/probe/trace"
)

type traceMergeCmd struct {
	traceInput
	traceOutput

	ForceConditions bool `help:"Merge although idle states, governors or interrupt moderation differ; the trace says where they change." name:"force-conditions"`
	JSON            bool `help:"One object per line." name:"json"`
}

// Run implements the command.
func (c *traceMergeCmd) Run(ctx context.Context, std streams) error {
	var inputs []trace.MergeInput
	var skipped trace.Stats
	p := newLateProgress(std.err, "reading "+c.name())
	for _, path := range c.Files {
		open := func() (*trace.Reader, error) {
			return trace.Open(path, trace.ReaderOptions{AllowTruncated: true, Salvage: c.Salvage})
		}
		r, err := open()
		if err != nil {
			return usageError(err)
		}
		in := trace.MergeInput{Name: path, Summary: trace.Summarize(ctx, r, p.read), Open: open}
		if err := errors.Join(in.Summary.Damage, r.Close()); err != nil {
			p.clear()
			return c.readError(fmt.Errorf("%s: %w", path, err))
		}
		skipped.Damaged = append(skipped.Damaged, in.Summary.Stats.Damaged...)
		inputs = append(inputs, in)
	}
	ordered, err := trace.PlanMerge(inputs, c.ForceConditions)
	if err != nil {
		p.clear()
		if errors.Is(err, trace.ErrConditions) {
			err = fmt.Errorf("%w; --force-conditions merges them all the same", err)
		}
		return usageError(err)
	}
	header := trace.MergeHeader(ordered)
	w, err := c.create(c.edit(header))
	if err != nil {
		p.clear()
		return err
	}
	err = errors.Join(trace.Merge(ctx, ordered, w, p.read), w.Close())
	p.clear()
	if err != nil {
		return c.discard(c.readError(err))
	}
	if header.Run == nil && ordered[0].Summary.Header.Run != nil {
		fmt.Fprintln(std.err, "not the same was run in all of them: the merged trace has decisions, and no run to verify")
	}
	return printReplay(std.out, c.JSON, c.made(w.Stats(), skipped))
}
