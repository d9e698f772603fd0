package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"autotune/model/sim"
)

type simulateFitCmd struct {
	Data    string        `arg:"" help:"Measurements: CSV with the published table's header." type:"existingfile" placeholder:"DATA.csv"`
	Preset  string        `help:"Where the search starts." default:"epyc7662-cx5"`
	Summary string        `help:"Mechanism counters of the same runs, to be fitted too: CSV." type:"existingfile" placeholder:"CSV"`
	Cross   bool          `help:"Leave one load out in turn and predict it; writes no preset. What --preset was fitted to must not include the data."`
	Rounds  int           `help:"Linearisations of the search; 0 evaluates without fitting." default:"8"`
	Span    time.Duration `help:"Simulated time of a cell during the search." default:"100ms"`
	Seed    uint64        `help:"Names the random numbers; the same seed gives the same preset." default:"1"`
	Jobs    int           `help:"Cells at the same time; one per CPU by default." short:"j" default:"0"`
	Output  string        `short:"o" help:"Write the preset to this file." type:"path" placeholder:"FILE.json"`
}

// Run implements the command.
func (c *simulateFitCmd) Run(ctx context.Context, std streams) error {
	if c.Rounds < 0 || c.Span <= 0 || c.Jobs < 0 {
		return usageError(errors.New("--rounds and --jobs must not be negative, --span positive"))
	}
	if !c.Cross && c.Rounds > 0 && c.Output == "" {
		return usageError(errors.New("say where the preset goes with -o FILE.json"))
	}
	if c.Output != "" && filepath.Ext(c.Output) != ".json" {
		return usageError(fmt.Errorf("-o %s: the name of a preset file ends in .json", c.Output))
	}
	start, err := sim.LoadPreset(c.Preset)
	if err != nil {
		return usageError(err)
	}
	o := sim.FitOptions{
		Start: start, Rounds: c.Rounds, Span: c.Span, Seed: c.Seed, Workers: c.Jobs,
		Progress: func(round int, loss float64, _ *sim.Preset) {
			fmt.Fprintf(std.err, "round %d: loss %.4f\n", round, loss)
		},
	}
	if err := readInto(c.Data, func(f *os.File) (err error) { o.Cells, err = sim.ReadTable(f); return err }); err != nil {
		return usageError(err)
	}
	if c.Summary != "" {
		if err := readInto(c.Summary, func(f *os.File) (err error) { o.Counters, err = sim.ReadCounters(f); return err }); err != nil {
			return usageError(err)
		}
	}
	if c.Cross {
		folds, err := sim.Cross(ctx, o)
		if err != nil {
			return err
		}
		var predicted []sim.Cell
		for _, fold := range folds {
			predicted = append(predicted, fold.Predicted...)
		}
		fmt.Fprintln(std.out, "errors of predicting each load by a fit on the others:")
		return sim.WriteErrors(std.out, sim.Errors(predicted, o.Cells))
	}
	fitted := start
	if c.Rounds > 0 {
		if fitted, err = sim.Fit(ctx, o); err != nil {
			return err
		}
		fitted.Name = strings.TrimSuffix(filepath.Base(c.Output), ".json")
		fitted.About = fmt.Sprintf("fitted to %s from %s, seed %d", filepath.Base(c.Data), start.Name, c.Seed)
	}
	if err := c.report(ctx, std, fitted, o.Cells); err != nil {
		return err
	}
	if c.Output == "" {
		return nil
	}
	f, err := os.Create(c.Output)
	if err != nil {
		return fmt.Errorf("write preset: %w", err)
	}
	return errors.Join(fitted.Write(f), f.Close())
}

// report prints how far the preset is from the cells, from random numbers that
// the fit did not see.
func (c *simulateFitCmd) report(ctx context.Context, std streams, p *sim.Preset, cells []sim.Cell) error {
	loads, cases := map[string]bool{}, map[string]bool{}
	o := sim.TableOptions{Preset: p, Runs: 3, Seed: c.Seed + 1, Workers: c.Jobs}
	for _, cell := range cells {
		if !loads[cell.Load] {
			loads[cell.Load] = true
			o.Loads = append(o.Loads, cell.Load)
		}
		if !cases[cell.Case] {
			cases[cell.Case] = true
			o.Cases = append(o.Cases, cell.Case)
		}
	}
	rows, err := sim.Table(ctx, o)
	if err != nil {
		return err
	}
	return sim.WriteErrors(std.out, sim.Errors(sim.Cells(rows), cells))
}

func readInto(path string, read func(*os.File) error) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	if err := errors.Join(read(f), f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
