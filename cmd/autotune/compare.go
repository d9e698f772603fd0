package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/experiments/compare"
	"autotune/experiments/scenarios"
	"autotune/model/sim"
	"autotune/tuner"
)

type compareCmd struct {
	Grid       compareGridCmd       `cmd:"" default:"withargs" help:"Run policies and references through simulated scenarios, and say who wins (the word grid may be left out)."`
	Robustness compareRobustnessCmd `cmd:"" help:"One table of policies under other targets, windows, machines and measurements."`
	Merge      compareMergeCmd      `cmd:"" help:"Join the shards of a comparison, or of a robustness table, and report."`
	Table      compareTableCmd      `cmd:"" help:"One table of several comparisons."`
}

type compareGridCmd struct {
	Policies   []string       `help:"Policies as for run; separated by commas, or the flag again. A piece key=value continues the spec before it." sep:"none" placeholder:"SPEC,..."`
	References []string       `help:"References that are run beside base, best-static and oracle: fixed (suspend20 or defer20), oracle-transient, or none." default:"fixed,oracle-transient" placeholder:"NAME"`
	Scenarios  []string       `help:"Scenarios: names of shipped ones, or TOML files; by default constant,step,diurnal,mmpp,flash,mixed, and none beside --traces." placeholder:"NAME|FILE.toml"`
	SLO        *time.Duration `help:"Target for the delay; by default 250us in the suspend regime and 300us in the deferral regime." name:"slo" placeholder:"D"`
	Quantile   float64        `help:"Which quantile of the delay is to meet the target." name:"slo-quantile" default:"0.99" placeholder:"Q"`
	Interval   time.Duration  `help:"Length of a window." default:"250ms"`
	Windows    int            `help:"Windows of each scenario without a duration of its own, and most of a recording; 0 is all of the longest recording." default:"240"`
	Skip       int            `help:"Windows at the start that are not judged." default:"0"`
	Seeds      int            `help:"Repetitions; from 5 on there are winners." default:"5"`
	Seed       uint64         `help:"The first seed." default:"1"`
	Preset     string         `help:"Simulated machine: a shipped preset, or a file; by default epyc7662-cx5." placeholder:"NAME|FILE.json"`
	Regime     string         `help:"Whether the application prefers busy polling, so that interrupts can be suspended: suspend or deferral; by default suspend, and with --traces what the recorded applications do." placeholder:"NAME"`
	Latency    string         `help:"Whose delay is seen and judged: client (as the published runs report it) or server; by default client, and with --traces server, as recorded." placeholder:"NAME"`
	Queues     *int           `help:"Queues that are simulated, with their share of the host's load, or of recordings the busiest; 0 is all. By default 1, and with --traces all." placeholder:"N"`
	Guard      string         `help:"Whether policies run behind the guards: on or off." default:"on"`
	Plant      []string       `help:"How the machine differs from the preset, or how well it is seen: costs=2, app-costs=2, rtt=20us, noise=4, skew=0.5, sample-every=16." placeholder:"KEY=VALUE"`
	LoadScale  float64        `help:"Multiplies the scenarios' loads." default:"1"`
	MaxFlush   time.Duration  `help:"Largest flush timeout of the references." default:"200us"`
	Shard      string         `help:"Simulate part I of N only; autotune compare merge joins them." placeholder:"I/N"`
	Output     string         `short:"o" help:"Directory of the report and the raw rows." default:"compare-report" type:"path" placeholder:"DIR"`
	Table      string         `help:"File that keeps the references' table of steady states; by default steady.json in the directory. Shards may share one." type:"path" placeholder:"FILE"`
	Force      bool           `help:"Overwrite another comparison in the directory, or run the same again."`
	Journal    bool           `help:"Keep every decision, a file per cell, in journals/ of the directory."`
	Jobs       int            `short:"j" help:"Goroutines; 0 is one per usable CPU. Results do not depend on it." default:"0"`
	JSON       bool           `help:"One object per line." name:"json"`

	keepFlags
	compareTraceFlags `group:"Recorded load"`
}

// keepFlags keep finished cells for other runs.
type keepFlags struct {
	Cells    string `help:"Directory that keeps each cell as it ends and gives back those that are there, so that an interrupted comparison goes on, and one with a policy more simulates only that." type:"path" placeholder:"DIR"`
	AnyBuild bool   `help:"Take over from --cells what references did under another build of autotune with this flag, and their tables of steady states: for work on a policy, as long as the simulator stays as it is." name:"any-build"`
}

// check refuses flags that do nothing.
func (k keepFlags) check() error {
	if k.AnyBuild && k.Cells == "" {
		return errors.New("--any-build belongs to --cells, which keeps what another build made")
	}
	return nil
}

// Help says what the name alone does.
func (compareCmd) Help() string {
	return "Without one of these words it is grid: autotune compare --policies greybox,aimd. Its flags: autotune compare grid --help"
}

// compareTraceFlags say how recorded load drives a comparison.
type compareTraceFlags struct {
	Traces          []string `help:"Recordings, whose load becomes a scenario each; the parts of one, in their order, are one. A quoted pattern stands for the files that match." placeholder:"FILE"`
	Fit             bool     `help:"Fit the simulated machine to the recordings; --preset is then what the fit starts from."`
	ForceConditions bool     `help:"Compare although idle states, governors or interrupt moderation of the recordings differ." name:"force-conditions"`
}

// defaultScenarios are compared where nothing else is named.
const defaultScenarios = "constant,step,diurnal,mmpp,flash,mixed"

// defaults returns what the flags say, with defaults for all that recordings do
// not tell.
func (c *compareGridCmd) defaults() (compare.Plan, error) {
	p := compare.Plan{
		Program: programIdentity(), Scenarios: c.Scenarios, Seeds: c.Seeds, FirstSeed: c.Seed, Quantile: c.Quantile,
		Interval: c.Interval, Windows: c.Windows, Skip: c.Skip, Preset: cmp.Or(c.Preset, sim.DefaultPreset),
		Regime: compare.Regime(c.Regime), Latency: compare.Latency(c.Latency),
		LoadScale: c.LoadScale, MaxFlush: c.MaxFlush, Policies: []string{}, Traces: []compare.Trace{},
	}
	recorded := len(c.Traces) > 0
	switch {
	case !recorded && (c.Fit || c.ForceConditions):
		return p, errors.New("--fit and --force-conditions belong to --traces")
	case recorded && c.Interval <= 0:
		return p, fmt.Errorf("--interval %v: windows of 10ms to 1m", c.Interval)
	}
	if len(p.Scenarios) == 0 {
		p.Scenarios = []string{}
		if !recorded {
			p.Scenarios = strings.Split(defaultScenarios, ",")
		}
	}
	if p.Latency == "" {
		p.Latency = compare.LatencyClient
		if recorded {
			p.Latency = compare.LatencyServer
		}
	}
	if p.Regime == "" && !recorded {
		p.Regime = compare.RegimeSuspend
	}
	switch {
	case c.Queues != nil:
		p.Queues = *c.Queues
	case !recorded:
		p.Queues = 1
	}
	for _, list := range c.Policies {
		p.Policies = append(p.Policies, compare.SplitSpecs(list)...)
	}
	switch c.Guard {
	case "on":
		p.Guarded = true
	case "off":
	default:
		return p, fmt.Errorf("--guard %s: it is on or off", c.Guard)
	}
	preset, err := sim.LoadPreset(p.Preset)
	if err != nil {
		return p, err
	}
	if p.Queues == 0 && !recorded {
		p.Queues = preset.Host.Queues
	}
	if p.Plant, err = compare.ParsePlant(c.Plant); err != nil {
		return p, err
	}
	return p, nil
}

// references returns the references that are run beside those that always are.
func (c *compareGridCmd) references(p *compare.Plan) ([]string, error) {
	out := []string{}
	for _, name := range c.References {
		switch {
		case name == "none" && len(c.References) == 1:
			return out, nil
		case name == "fixed":
			name = p.Fixed()
		}
		if slices.Contains(out, name) {
			return nil, fmt.Errorf("--references: %s is given twice", name)
		}
		out = append(out, name)
	}
	return out, nil
}

// plan returns what the flags ask for, recordings read.
func (c *compareGridCmd) plan(ctx context.Context, std streams, progress func(string)) (compare.Plan, error) {
	p, err := c.defaults()
	if err != nil {
		return p, err
	}
	var traces *compareTraces
	if len(c.Traces) > 0 {
		if traces, err = c.readTraces(ctx, std); err != nil {
			return p, err
		}
		if err := c.addTraces(traces, &p); err != nil {
			return p, err
		}
	}
	if p.SLO = regimeSLO(p.Regime); c.SLO != nil {
		p.SLO = *c.SLO
	}
	if p.References, err = c.references(&p); err != nil {
		return p, err
	}
	// A fit takes long: what else is wrong is said before.
	if err := p.Prepare(); err != nil {
		return p, err
	}
	for _, t := range p.Traces {
		fmt.Fprintf(std.err, "%s: %s; %s regime\n", t.Name, t.About, p.Regime)
	}
	if !c.Fit {
		return p, nil
	}
	if err := c.fit(ctx, traces, &p, progress); err != nil {
		return p, err
	}
	return p, p.Prepare()
}

// regimeSLO is the target by which policies are judged in a regime.
func regimeSLO(r compare.Regime) time.Duration {
	if r == compare.RegimeDeferral {
		return 300 * time.Microsecond
	}
	return 250 * time.Microsecond
}

// parseShard reads I/N; empty is all, 0 of 0.
func parseShard(text string) (shard, shards int, err error) {
	if text == "" {
		return 0, 0, nil
	}
	a, b, ok := strings.Cut(text, "/")
	shard, errA := strconv.Atoi(a)
	shards, errB := strconv.Atoi(b)
	if !ok || errA != nil || errB != nil || shard < 1 || shards < shard || shards > 100000 {
		return 0, 0, fmt.Errorf("--shard %s: write I/N with I from 1 to N, for example 3/20", text)
	}
	return shard, shards, nil
}

// Run implements the command.
func (c *compareGridCmd) Run(ctx context.Context, std streams) error {
	shard, shards, err := parseShard(c.Shard)
	if err != nil {
		return usageError(err)
	}
	if err := c.check(); err != nil {
		return usageError(err)
	}
	progress := newTicker(std.err)
	plan, err := c.plan(ctx, std, progress.say)
	switch {
	case errors.Is(err, context.Canceled):
		return comparisonError(err)
	case err != nil:
		return usageError(err)
	}
	if !c.Force {
		done, err := compare.Holds(c.Output, plan, shard, shards)
		if err != nil {
			return usageError(err)
		}
		if done && !c.Journal {
			fmt.Fprintf(std.err, "%s holds this already; --force runs it again\n", c.Output)
			return c.printKept(std, shard, shards)
		}
	}
	if err := os.MkdirAll(c.Output, 0o755); err != nil {
		return usageError(fmt.Errorf("make the directory of the report: %w", err))
	}
	table := c.Table
	if table == "" {
		table = filepath.Join(c.Output, compare.TableFile)
	}
	options := compare.RunOptions{
		Shard: shard, Shards: shards, Table: table, Kept: c.Cells, AnyBuild: c.AnyBuild, Workers: c.Jobs, Progress: progress.say,
	}
	if c.Journal {
		options.Journal = c.journals
	}
	cells, err := compare.Run(ctx, &plan, options)
	progress.end()
	if err != nil {
		return comparisonError(err)
	}
	if err := compare.WriteRaw(c.Output, plan, shard, shards, cells); err != nil {
		return err
	}
	if shards > 0 {
		return c.printShard(std, shard, shards, len(cells))
	}
	return printReport(std, c.Output, c.JSON, plan, cells)
}

// printKept reports what the directory holds already.
func (c *compareGridCmd) printKept(std streams, shard, shards int) error {
	m, cells, err := compare.ReadRaw(c.Output)
	if err != nil {
		return comparisonError(err)
	}
	if shards > 0 {
		return c.printShard(std, shard, shards, len(cells))
	}
	return printReport(std, c.Output, c.JSON, m.Plan, cells)
}

// shardLine tells of a shard that is done.
type shardLine struct {
	Kind      string `json:"kind"` // "shard"
	Shard     int    `json:"shard"`
	Shards    int    `json:"shards"`
	Cells     int    `json:"cells"`
	Directory string `json:"directory"`
}

func (c *compareGridCmd) printShard(std streams, shard, shards, cells int) error {
	if c.JSON {
		return printJSON(std.out, shardLine{"shard", shard, shards, cells, c.Output})
	}
	fmt.Fprintf(std.out, "shard %d of %d: %d cells in %s; join all with autotune compare merge DIR... -o REPORT\n", shard, shards, cells, c.Output)
	return nil
}

// journals returns the file for a cell's decisions.
func (c *compareGridCmd) journals(scenario string, seed uint64, contender string) (tuner.Journal, error) {
	dir := filepath.Join(c.Output, "journals")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the directory of journals: %w", err)
	}
	name := strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\:*?"<>|`, r) {
			return '_'
		}
		return r
	}, fmt.Sprintf("%s-%d-%s.jsonl", scenario, seed, contender))
	f, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("open a journal: %w", err)
	}
	return cellJournal{tuner.NewJSONL(f), f}, nil
}

type cellJournal struct {
	*tuner.JSONL
	io.Closer
}

type compareMergeCmd struct {
	Directories []string `arg:"" name:"dir" help:"The directories of all shards, in any order."`
	Output      string   `short:"o" help:"Directory of the report and the raw rows." default:"compare-report" type:"path" placeholder:"DIR"`
	Force       bool     `help:"Overwrite what other commands left in the directory."`
	JSON        bool     `help:"One object per line." name:"json"`
}

// Run implements the command.
func (c *compareMergeCmd) Run(_ context.Context, std streams) error {
	for _, dir := range c.Directories {
		if same(dir, c.Output) {
			return usageError(fmt.Errorf("-o %s is the directory of a shard; name another", c.Output))
		}
	}
	if isRobustness(c.Directories[0]) {
		return c.mergeRobustness(std)
	}
	plan, cells, err := compare.Merge(c.Directories)
	if err != nil {
		return comparisonError(err)
	}
	if !c.Force {
		if _, err := compare.Holds(c.Output, plan, 0, 0); err != nil {
			return usageError(err)
		}
	}
	if err := os.MkdirAll(c.Output, 0o755); err != nil {
		return usageError(fmt.Errorf("make the directory of the report: %w", err))
	}
	if err := compare.WriteRaw(c.Output, plan, 0, 0, cells); err != nil {
		return err
	}
	return printReport(std, c.Output, c.JSON, plan, cells)
}

type compareTableCmd struct {
	Directories []string `arg:"" name:"dir" help:"Directories of comparisons."`
	Contenders  []string `help:"Who is shown; by default the policies and best-static. Separated as --policies are." sep:"none" placeholder:"NAME"`
	Scenarios   bool     `help:"A row per scenario, and not only of all together."`
	Markdown    bool     `help:"As a Markdown table."`
	JSON        bool     `help:"One object per line." name:"json"`
}

// Run implements the command.
func (c *compareTableCmd) Run(_ context.Context, std streams) error {
	var names []string
	for _, list := range c.Contenders {
		names = append(names, compare.SplitSpecs(list)...)
	}
	all, err := compare.Collect(c.Directories, names, c.Scenarios)
	if err != nil {
		return comparisonError(err)
	}
	if !c.JSON {
		return compare.WriteCollected(std.out, all, c.Markdown)
	}
	for _, row := range all {
		if err := printJSON(std.out, row); err != nil {
			return err
		}
	}
	return nil
}

func same(a, b string) bool {
	x, errX := os.Stat(a)
	y, errY := os.Stat(b)
	return errX == nil && errY == nil && os.SameFile(x, y)
}

func printReport(std streams, dir string, asJSON bool, plan compare.Plan, cells []compare.Cell) error {
	r, err := compare.NewReport(plan, cells)
	if err != nil {
		return err
	}
	if err := r.WriteFiles(dir); err != nil {
		return err
	}
	if asJSON {
		return errors.Join(r.WriteCells(std.out), r.WriteSummary(std.out))
	}
	if err := r.WriteText(std.out); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "\nreport: %s (tables and raw rows beside it)\n", filepath.Join(dir, compare.HTMLFile))
	return nil
}

// comparisonError tells wrong use from failure.
func comparisonError(err error) error {
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted: there is no report")
	}
	for _, use := range []error{
		compare.ErrPlan, compare.ErrShards, compare.ErrDirectory, compare.ErrOccupied, scenarios.ErrUnknown, sim.ErrUnknownPreset,
	} {
		if errors.Is(err, use) {
			return usageError(err)
		}
	}
	return err
}

// programIdentity is the version; of a build from changed sources, which says
// no more than that, also a digest of the program itself.
func programIdentity() string {
	v := version()
	if v != "unknown" && v != "(devel)" && !strings.HasSuffix(v, "+changes") {
		return v
	}
	self, err := os.Executable()
	if err != nil {
		return v
	}
	f, err := os.Open(self)
	if err != nil {
		return v
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return v
	}
	return v + "-" + hex.EncodeToString(h.Sum(nil))[:12]
}
