package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"autotune/model/sim"
)

type simulateCmd struct {
	Cell  simulateCellCmd  `cmd:"" default:"withargs" help:"One setting at one load, or with --table the published benchmark's form (the word cell may be left out)."`
	Fit   simulateFitCmd   `cmd:"" help:"Fit a preset to a benchmark table."`
	Check simulateCheckCmd `cmd:"" help:"Compare the simulator with this kernel in a test bed."`
}

type simulateCellCmd struct {
	Preset  string `help:"Machine: a shipped preset, or a preset file ending in .json." default:"epyc7662-cx5"`
	Setting string `help:"A case (base, suspend20, ...), or knobs as defer=100,flush=20us,suspend=20ms,budget=64,prefer=true." default:"base" placeholder:"SETTING"`
	Load    string `help:"Offered load in requests per second, such as 600K, or MAX for the closed loop." default:"600K"`
	JSON    bool   `help:"One object per line." name:"json"`

	Table bool     `help:"Simulate cases x loads and print the published table's CSV."`
	Loads []string `help:"Loads of the table; all six of the published runs by default." placeholder:"LOAD"`
	Cases []string `help:"Cases of the table; all twelve by default." placeholder:"CASE"`
	Runs  int      `help:"Runs of each cell; the table has their medians." default:"3"`

	Span   time.Duration `help:"Simulated time of a run." default:"1s"`
	Warmup time.Duration `help:"Simulated time before it that is not measured." default:"200ms"`
	Seed   uint64        `help:"Names the random numbers; the same seed gives the same bytes." default:"1"`
	Jobs   int           `help:"Runs at the same time; one per CPU by default." short:"j" default:"0"`
}

// cellLine is one cell in the output of simulate --json. Rates are per second
// of simulated time; latencies are the client's.
type cellLine struct {
	Kind                   string   `json:"kind"` // "cell"
	Preset                 string   `json:"preset"`
	Setting                string   `json:"setting"`
	Load                   string   `json:"load"`
	Runs                   int      `json:"runs"`
	Seed                   uint64   `json:"seed"`
	QPS                    float64  `json:"qps"`
	AvgUs                  float64  `json:"avg_us"`
	P50Us                  float64  `json:"p50_us"`
	P95Us                  float64  `json:"p95_us"`
	P99Us                  float64  `json:"p99_us"`
	CPUPercent             float64  `json:"cpu_percent"`
	SoftirqPercent         float64  `json:"softirq_percent"`
	CyclesPerQuery         float64  `json:"cycles_per_query"`
	Utilisation            float64  `json:"utilisation"`
	IRQs                   float64  `json:"irqs_per_s"`
	Polls                  float64  `json:"polls_per_s"`
	BusyPolls              float64  `json:"busy_polls_per_s"`
	EmptyPollShare         float64  `json:"empty_poll_share"`
	PacketsPerNonEmptyPoll float64  `json:"packets_per_nonempty_poll"`
	EpollCalls             float64  `json:"epoll_calls_per_s"`
	EventsPerNonEmptyCall  float64  `json:"events_per_nonempty_call"`
	TimerFires             float64  `json:"timer_fires_per_s"`
	Dropped                uint64   `json:"dropped_packets"`
	Warning                *string  `json:"warning"`
	PollWork               []uint64 `json:"poll_work"`
	EpollEvents            []uint64 `json:"epoll_events"`
}

// Run implements the command.
func (c *simulateCellCmd) Run(ctx context.Context, std streams) error {
	preset, err := sim.LoadPreset(c.Preset)
	if err != nil {
		return usageError(err)
	}
	if c.Runs < 1 || c.Span <= 0 || c.Warmup < 0 || c.Jobs < 0 {
		return usageError(errors.New("--runs and --span must be positive, --warmup and --jobs not negative"))
	}
	if c.Table {
		return c.table(ctx, std, preset)
	}
	if len(c.Loads) > 0 || len(c.Cases) > 0 {
		return usageError(errors.New("--loads and --cases belong to --table; without it use --load and --setting"))
	}
	setting, err := sim.ParseSetting(c.Setting)
	if err != nil {
		return usageError(err)
	}
	load, err := sim.ParseLoad(c.Load)
	if err != nil {
		return usageError(err)
	}
	r, err := sim.Run(ctx, sim.Options{
		Preset: preset, Case: setting, Load: load, Seed: c.Seed,
		Duration: c.Span, Warmup: c.Warmup, Workers: c.Jobs,
	})
	if err != nil {
		return err
	}
	row := sim.Row{Cell: r.Cell(c.Load), Runs: []sim.Result{r}}
	if c.JSON {
		return printJSON(std.out, c.line(preset, &row))
	}
	t := newTable(std.out, "preset "+preset.Name, c.Setting+" at "+c.Load)
	for _, pair := range []struct {
		name, value string
	}{
		{"throughput", fmt.Sprintf("%.0f requests/s", r.QPS)},
		{"latency", fmt.Sprintf("mean %.1f us, p50 %.1f us, p95 %.1f us, p99 %.1f us", r.AvgUs, r.P50Us, r.P95Us, r.P99Us)},
		{"CPU", fmt.Sprintf("%.1f%% (softirq %.1f%%), %.0f cycles per request", r.CPUPercent, r.SoftirqPercent, r.CyclesPerQuery)},
		{"interrupts", fmt.Sprintf("%.0f/s from the NIC, %.0f/s from timers", r.IRQs, r.TimerFires)},
		{"polls", fmt.Sprintf("%.0f/s (%.0f/s busy), %.1f%% empty, %.2f packets per poll that found any", r.Polls, r.BusyPolls, 100*r.EmptyShare, r.PacketsPerPoll)},
		{"epoll_wait", fmt.Sprintf("%.0f calls/s, %.2f events per call with any", r.EpollCalls, r.EventsPerCall)},
		{"drops", fmt.Sprintf("%d packets", r.Dropped)},
	} {
		t.row(pair.name, pair.value)
	}
	if row.Saturated() {
		t.row("warning", saturatedWarning)
	}
	return t.flush()
}

const saturatedWarning = "utilisation above 0.9: do not rank settings by this"

func (c *simulateCellCmd) table(ctx context.Context, std streams, preset *sim.Preset) error {
	for _, name := range c.Cases {
		if _, err := sim.CaseByName(name); err != nil {
			return usageError(err)
		}
	}
	for _, load := range c.Loads {
		if _, err := sim.ParseLoad(load); err != nil {
			return usageError(err)
		}
	}
	progress := newTicker(std.err)
	rows, err := sim.Table(ctx, sim.TableOptions{
		Preset: preset, Cases: c.Cases, Loads: c.Loads, Runs: c.Runs, Seed: c.Seed,
		Span: c.Span, Warmup: c.Warmup, Workers: c.Jobs,
		Progress: func(done, all int) { progress.say(fmt.Sprintf("simulated %d of %d runs", done, all)) },
	})
	progress.end()
	if err != nil {
		return err
	}
	if c.JSON {
		for i := range rows {
			if err := printJSON(std.out, c.line(preset, &rows[i])); err != nil {
				return err
			}
		}
		return nil
	}
	if err := sim.WriteTable(std.out, sim.Cells(rows)); err != nil {
		return err
	}
	var saturated []string
	for i := range rows {
		if rows[i].Saturated() {
			saturated = append(saturated, rows[i].Case+" at "+rows[i].Load)
		}
	}
	if len(saturated) > 0 {
		fmt.Fprintf(std.err, "%s: %s\n", saturatedWarning, strings.Join(saturated, ", "))
	}
	return nil
}

// line is a row with the counters of its first run.
func (c *simulateCellCmd) line(preset *sim.Preset, row *sim.Row) cellLine {
	r := &row.Runs[0]
	line := cellLine{
		Kind: "cell", Preset: preset.Name, Setting: r.Case, Load: row.Load, Runs: len(row.Runs), Seed: c.Seed,
		QPS: row.QPS, AvgUs: row.Avg, P50Us: r.P50Us, P95Us: row.P95, P99Us: row.P99,
		CPUPercent: row.CPU, SoftirqPercent: r.SoftirqPercent,
		CyclesPerQuery: row.Cycles * sim.CyclesScale, Utilisation: r.Utilisation,
		IRQs: r.IRQs, Polls: r.Polls, BusyPolls: r.BusyPolls, EmptyPollShare: r.EmptyShare,
		PacketsPerNonEmptyPoll: r.PacketsPerPoll, EpollCalls: r.EpollCalls,
		EventsPerNonEmptyCall: r.EventsPerCall, TimerFires: r.TimerFires, Dropped: r.Dropped,
		PollWork: r.Work[:], EpollEvents: r.Waits[:],
	}
	if row.Saturated() {
		text := saturatedWarning
		line.Warning = &text
	}
	return line
}
