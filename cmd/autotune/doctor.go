package main

import (
	"context"
	"fmt"
	"slices"

	"autotune/actuate"
	"autotune/model"
	"autotune/probe"
)

type doctorCmd struct {
	JSON bool `help:"One object per line." name:"json"`
}

// Run implements the command. It exits with 3 where tuning is not possible,
// after saying why.
func (c *doctorCmd) Run(ctx context.Context, std streams) error {
	findings := slices.Concat(probe.Check(ctx), actuate.Check(ctx))
	if err := ctx.Err(); err != nil {
		return err
	}
	missing := 0
	for _, f := range findings {
		if f.State == model.FindingMissing {
			missing++
		}
		if c.JSON {
			if err := printJSON(std.out, f); err != nil {
				return err
			}
		}
	}
	if !c.JSON {
		if err := printFindings(std, findings); err != nil {
			return err
		}
	}
	if missing > 0 {
		return &exitError{code: exitCannot}
	}
	return nil
}

func printFindings(std streams, findings []model.Finding) error {
	t := newTable(std.out, "STATE", "AREA", "CHECK", "FOUND")
	for _, f := range findings {
		t.row(string(f.State), f.Area, f.Name, f.Detail)
	}
	if err := t.flush(); err != nil {
		return err
	}
	count := map[model.FindingState]int{}
	for _, f := range findings {
		count[f.State]++
		if f.State == model.FindingOK {
			continue
		}
		fmt.Fprintf(std.out, "\n%s: %s\n  found:        %s\n  consequence:  %s\n  remedy:       %s\n", f.State, f.Name, f.Detail, f.Consequence, f.Remedy)
	}
	fmt.Fprintf(std.out, "\n%d ok, %d degraded, %d missing\n", count[model.FindingOK], count[model.FindingDegraded], count[model.FindingMissing])
	return nil
}
