package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"autotune/actuate"
	"autotune/model"
	"autotune/probe"
)

type doctorCmd struct {
	App   string   `help:"Instead: is this application ready for interrupt suspension? comm=NAME, pid=N or cgroup=PATH." placeholder:"SELECTOR"`
	Fix   bool     `help:"With --app: do what autotune can do by itself; autotune restore undoes it."`
	Iface []string `help:"With --app: only these interfaces; all of the application's network namespace by default." placeholder:"IFACE"`
	Netns string   `help:"With --app: network namespace, by name or path; the application's own by default." placeholder:"NAME|PATH"`
	State string   `help:"With --fix: directory of the originals." placeholder:"DIR"`
	JSON  bool     `help:"One object per line." name:"json"`
}

// findingLine is one finding in the output of doctor --json.
type findingLine struct {
	Kind string `json:"kind"` // "finding"
	model.Finding
}

// Run implements the command. It exits with 3 where tuning is not possible,
// after saying why.
func (c *doctorCmd) Run(ctx context.Context, std streams) error {
	switch {
	case c.App != "":
		return c.application(ctx, std)
	case c.Fix || len(c.Iface) > 0 || c.Netns != "" || c.State != "":
		return usageError(errors.New("--fix, --iface, --netns and --state go with --app SELECTOR"))
	}
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
			if err := printJSON(std.out, findingLine{"finding", f}); err != nil {
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
	fmt.Fprintf(std.out, "\n%d ok, %d degraded, %d missing, %d unknown\n",
		count[model.FindingOK], count[model.FindingDegraded], count[model.FindingMissing], count[model.FindingUnknown])
	return nil
}
