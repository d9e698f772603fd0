package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"autotune/experiments/compare"
	"autotune/model/sim"
)

type compareRobustnessCmd struct {
	Policies   []string       `help:"Policies as for compare." sep:"none" default:"greybox,aimd" placeholder:"SPEC,..."`
	WrongPrior []string       `help:"Policies that are added where the machine is not what a prior describes (costs-2, costs-half, rtt-20us); none for none. By default greybox with the prior of the preset, where greybox is compared." name:"wrong-prior" sep:"none" placeholder:"SPEC,..."`
	Variants   []string       `help:"Which variants: nominal, slo-150us, slo-400us, slo-1ms, window-100ms, window-1s, window-5s, noise-4, skew-half, sampled-16, costs-2, costs-half, rtt-20us; by default all, in this order." placeholder:"NAME"`
	Scenarios  []string       `help:"Scenarios, as for compare; by default constant,step,diurnal,mmpp,flash,mixed." placeholder:"NAME|FILE.toml"`
	SLO        *time.Duration `help:"Target for the delay where a variant has no other; by default 250us in the suspend regime and 300us in the deferral regime." name:"slo" placeholder:"D"`
	Windows    int            `help:"Windows of 250ms of each scenario; variants with windows of 1s last twice as long, those with 5s five times." default:"240"`
	Seeds      int            `help:"Repetitions; from 5 on there are winners." default:"10"`
	Seed       uint64         `help:"The first seed." default:"1"`
	Preset     string         `help:"Simulated machine: a shipped preset, or a file." default:"epyc7662-cx5" placeholder:"NAME|FILE.json"`
	Regime     string         `help:"Whether the application prefers busy polling: suspend or deferral." default:"suspend" placeholder:"NAME"`
	Latency    string         `help:"Whose delay is seen and judged: client or server." default:"client" placeholder:"NAME"`
	Shard      string         `help:"Simulate part I of N of every variant only; autotune compare merge joins them." placeholder:"I/N"`
	Output     string         `short:"o" help:"Directory of the table, and of a comparison for each variant. Those that are there already are kept, if they are of the same plan." default:"robustness-report" type:"path" placeholder:"DIR"`
	Tables     string         `help:"Directory that keeps the references' tables of steady states; by default that of the table. Shards may share one." type:"path" placeholder:"DIR"`
	Jobs       int            `short:"j" help:"Goroutines; 0 is one per usable CPU. Results do not depend on it." default:"0"`
	Force      bool           `help:"Overwrite what other commands left in the directory."`
	JSON       bool           `help:"One object per line." name:"json"`

	keepFlags
}

// variants returns the comparisons that the flags ask for.
func (c *compareRobustnessCmd) variants() ([]compare.Variant, error) {
	p := compare.Plan{
		Program: programIdentity(), Scenarios: c.Scenarios, Seeds: c.Seeds, FirstSeed: c.Seed, Quantile: 0.99,
		Interval: 250 * time.Millisecond, Windows: c.Windows, Preset: c.Preset, Regime: compare.Regime(c.Regime),
		Latency: compare.Latency(c.Latency), Queues: 1, Guarded: true, LoadScale: 1, MaxFlush: 200 * time.Microsecond,
		Policies: []string{}, References: []string{}, Traces: []compare.Trace{},
	}
	if len(p.Scenarios) == 0 {
		p.Scenarios = strings.Split(defaultScenarios, ",")
	}
	if p.SLO = regimeSLO(p.Regime); c.SLO != nil {
		p.SLO = *c.SLO
	}
	for _, list := range c.Policies {
		p.Policies = append(p.Policies, compare.SplitSpecs(list)...)
	}
	var misled []string
	for _, list := range c.WrongPrior {
		misled = append(misled, compare.SplitSpecs(list)...)
	}
	switch {
	case slices.Equal(misled, []string{"none"}):
		misled = nil
	case len(misled) == 0 && slices.Contains(p.Policies, "greybox") && c.Preset == sim.DefaultPreset:
		misled = []string{"greybox:prior=" + c.Preset}
	}
	return compare.Variants(p, c.Variants, misled)
}

// Run implements the command.
func (c *compareRobustnessCmd) Run(ctx context.Context, std streams) error {
	shard, shards, err := parseShard(c.Shard)
	if err != nil {
		return usageError(err)
	}
	variants, err := c.variants()
	if err != nil {
		return usageError(err)
	}
	if !c.Force {
		if err := compare.VariantsFit(c.Output, variants, shard, shards); err != nil {
			return usageError(err)
		}
	}
	if err := c.check(); err != nil {
		return usageError(err)
	}
	for _, dir := range []string{c.Output, c.Tables} {
		if dir == "" {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return usageError(fmt.Errorf("make the directory of the table: %w", err))
		}
	}
	progress := newTicker(std.err)
	err = compare.RunVariants(ctx, variants, c.Output, compare.RunOptions{
		Shard: shard, Shards: shards, Tables: c.Tables, Kept: c.Cells, AnyBuild: c.AnyBuild, Workers: c.Jobs, Progress: progress.say,
	})
	progress.end()
	if errors.Is(err, context.Canceled) {
		return fmt.Errorf("interrupted: there is no table; the variants that were done are in %s, and the same command goes on from there", c.Output)
	}
	if err != nil {
		return comparisonError(err)
	}
	if shards > 0 {
		if c.JSON {
			return printJSON(std.out, robustnessShardLine{"robustness_shard", shard, shards, len(variants), c.Output})
		}
		fmt.Fprintf(std.out, "shard %d of %d of %d variants in %s; join all with autotune compare merge DIR... -o TABLE\n", shard, shards, len(variants), c.Output)
		return nil
	}
	return printRobustness(std, c.Output, c.JSON)
}

// robustnessShardLine tells of a shard that is done.
type robustnessShardLine struct {
	Kind      string `json:"kind"` // "robustness_shard"
	Shard     int    `json:"shard"`
	Shards    int    `json:"shards"`
	Variants  int    `json:"variants"`
	Directory string `json:"directory"`
}

// printRobustness writes the table of a directory of variants, and prints it.
func printRobustness(std streams, dir string, asJSON bool) error {
	table, err := compare.ReadRobustTable(dir)
	if err != nil {
		return comparisonError(err)
	}
	if err := table.WriteFiles(dir); err != nil {
		return err
	}
	if asJSON {
		return table.WriteJSON(std.out)
	}
	if err := table.WriteText(std.out); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "\ntable: %s (also as .csv and .jsonl; a comparison of each variant in its directory)\n", filepath.Join(dir, compare.RobustTextFile))
	return nil
}

// isRobustness reports whether a directory holds variants.
func isRobustness(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, compare.RobustnessFile))
	return err == nil
}

// mergeRobustness joins shards of variants.
func (c *compareMergeCmd) mergeRobustness(std streams) error {
	if err := os.MkdirAll(c.Output, 0o755); err != nil {
		return usageError(fmt.Errorf("make the directory of the table: %w", err))
	}
	if err := compare.MergeVariants(c.Directories, c.Output, c.Force); err != nil {
		return comparisonError(err)
	}
	return printRobustness(std, c.Output, c.JSON)
}
