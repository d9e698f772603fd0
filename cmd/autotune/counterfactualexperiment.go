package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"autotune/actuate"
	"autotune/experiments/counterfactual"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"
	"autotune/model/sim"
	"autotune/probe"
	"autotune/probe/trace"
)

// counterfactualCmd records a bed under plain interrupts, predicts four
// settings from the recording, and measures them.
type counterfactualCmd struct {
	Rounds   int           `help:"How often each cell is measured; at least 5 for intervals." default:"5"`
	Window   time.Duration `help:"Length of a window; each measurement is three, of which the first settles." default:"500ms"`
	Recorded string        `help:"Judge what is in this directory instead of measuring." type:"existingdir" placeholder:"DIR"`
	Output   string        `short:"o" help:"Keep the recording and the measurements in this directory." type:"path" placeholder:"DIR"`
	Settings []string      `help:"Measure these; the first is recorded." sep:";" hidden:""`
	Loads    []float64     `help:"Offered loads." default:"5000,15000,30000" hidden:""`
	All      bool          `help:"Record every setting, to fit a preset to." hidden:""`
	Events   bool          `help:"Record single events too, and predict with and without them."`
	Bursts   bool          `help:"Offer requests in bursts of 20 on the average, at 120,000 per second within one, instead of at random."`
	Draws    int           `help:"Simulated hosts per prediction." default:"20"`
	Seed     uint64        `help:"Names the simulator's and the client's random numbers." default:"1"`
	JSON     bool          `help:"One object per line." name:"json"`
}

// The files of a directory.
const (
	counterfactualTrace = "recording.trace.zst"
	counterfactualCells = "measured.json"
)

// The bursts of --bursts.
const (
	burstRequests = 20
	burstRate     = 120e3
)

const counterfactualBase = "defer=0,flush=0s"

func counterfactualSettings() []string {
	return []string{
		counterfactualBase,
		"defer=100,flush=50us",
		"defer=100,flush=200us",
		"defer=100,flush=20us,suspend=20ms",
		"defer=100,flush=100us,suspend=20ms",
	}
}

// Run implements the command: 0 means that the predictions are within the
// limits, 4 that they are not or that nothing was decided.
func (c *counterfactualCmd) Run(ctx context.Context, std streams) (err error) {
	if c.Rounds < 1 || c.Window < 50*time.Millisecond || c.Draws < 1 {
		return usageError(errors.New("--rounds and --draws must be positive and --window at least 50ms"))
	}
	if c.Bursts && c.Recorded != "" {
		return usageError(errors.New("--bursts is about what is measured: leave it out with --recorded"))
	}
	dir := c.Recorded
	if dir == "" {
		if err := demoPossible(); err != nil {
			return cannotError(err)
		}
		if dir = c.Output; dir == "" {
			if dir, err = os.MkdirTemp("", "autotune-counterfactual-"); err != nil {
				return fmt.Errorf("make a directory: %w", err)
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return usageError(fmt.Errorf("make the directory: %w", err))
		}
		if err := c.measure(ctx, std, dir); err != nil {
			return err
		}
	}
	start, err := sim.LoadPreset("veth")
	if err != nil {
		return err
	}
	met := true
	withEvents := []bool{true}
	if c.Events {
		// To compare, as if there were none.
		withEvents = append(withEvents, false)
	}
	for _, events := range withEvents {
		recording, live, err := readCounterfactual(dir, events)
		if err != nil {
			return usageError(err)
		}
		fmt.Fprintln(std.err, "predicting")
		verdict, err := counterfactual.Check(ctx, recording, live, start, c.Draws, c.Seed)
		switch {
		case errors.Is(err, counterfactual.ErrMeasured):
			return usageError(fmt.Errorf("%s: %w", counterfactualCells, err))
		case err != nil:
			return err
		}
		verdict.EventWindows, _ = recording.Events()
		if err := printCounterfactual(std, verdict, c.JSON); err != nil {
			return err
		}
		met = met && (verdict.Met || !events)
	}
	if !met {
		return &exitError{code: exitMissed}
	}
	return nil
}

// readCounterfactual reads what measure wrote, with single events or without.
func readCounterfactual(dir string, events bool) (_ *counterfactual.Recording, live counterfactual.Live, err error) {
	data, err := os.ReadFile(filepath.Join(dir, counterfactualCells))
	if err != nil {
		return nil, live, err
	}
	if err := json.Unmarshal(data, &live); err != nil {
		return nil, live, fmt.Errorf("%s: %w", counterfactualCells, err)
	}
	reader, err := openTrace(filepath.Join(dir, counterfactualTrace))
	if err != nil {
		return nil, live, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	recording, err := counterfactual.Read(context.Background(), reader, events)
	return recording, live, err
}

// measure runs every setting at every load once per round, in an order that
// turns by one each round, and records the windows of the first setting.
func (c *counterfactualCmd) measure(ctx context.Context, std streams, dir string) (err error) {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it as load server and client: %w", err)
	}
	const serverCPU, clientCPU = 0, 1
	bed, err := testbed.New(ctx, testbed.Options{
		Prefix: "counterfactual", Threaded: true, Realtime: true, ServerCPU: serverCPU, ClientCPU: clientCPU,
	})
	if err != nil {
		return cannotError(fmt.Errorf("make a test bed: %w", err))
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	launch := func(ns *testbed.Namespace, role string) workload.Launch {
		return workload.Launch{Command: exec.Command(self, "experiment", role), Start: ns.Start}
	}
	server, err := workload.StartServer(ctx, launch(bed.Server(), "server"), workload.ServerConfig{
		Addr: netip.AddrPortFrom(bed.Server().Addr, 0), CPU: serverCPU, RuntimeCPU: clientCPU,
		ServiceTime: bedService, Realtime: true, BusyPoll: &workload.BusyPoll{Budget: 64, Prefer: true},
	}, nil)
	if err != nil {
		return fmt.Errorf("start the server: %w", err)
	}
	client, err := workload.StartClient(ctx, launch(bed.Client(), "client"), workload.ClientConfig{
		Addr: server.Addr(), CPU: clientCPU, RuntimeCPU: clientCPU, Connections: bedConnections,
		Nice: -10, Seed: c.Seed, Interval: c.Window / 5,
	}, nil)
	if err != nil {
		return fmt.Errorf("start the client: %w", err)
	}
	host, err := actuate.Open(ctx, actuate.Options{
		Namespace: actuate.ParseNamespace(bed.Server().Path), Ifaces: []string{bed.Server().Ifname}, ReadOnly: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	options := probe.Options{Interval: c.Window, Inventory: host, Budget: -1, Contexts: true, EpollEvents: true}
	if c.Events {
		options.Events = &probe.EventOptions{}
	}
	source, err := probe.Open(ctx, options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.Close()) }()
	napis, err := host.NAPIs(ctx)
	if err != nil {
		return err
	}
	header, err := traceFacts{host: host, source: source, napis: napis, interval: c.Window}.header()
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, counterfactualTrace)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove an earlier recording: %w", err)
	}
	writer, err := trace.Create(filepath.Join(dir, counterfactualTrace), header, trace.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, writer.Close()) }()

	release, err := kernelRelease()
	if err != nil {
		return err
	}
	settings := c.Settings
	if len(settings) == 0 {
		settings = counterfactualSettings()
	}
	live := counterfactual.Live{
		Kernel: release, CPUs: runtime.NumCPU(), Recorded: settings[0], Loads: c.Loads,
	}
	if c.Bursts {
		live.Burst, live.BurstRate = burstRequests, burstRate
	}
	live.Blocks = make([][][2]int, len(live.Loads))
	for load := range live.Loads {
		for _, setting := range settings {
			live.Cells = append(live.Cells, counterfactual.LiveCell{Setting: setting, Load: load})
		}
	}
	recorded := 0
	progress := newTicker(std.err)
	for round := range c.Rounds {
		for i := range live.Cells {
			cell := &live.Cells[(i+round)%len(live.Cells)]
			progress.say(fmt.Sprintf("round %d of %d, cell %d of %d", round+1, c.Rounds, i+1, len(live.Cells)))
			windows, err := c.cell(ctx, bed, client, source, cell, live.Loads[cell.Load], round)
			if err != nil {
				return err
			}
			if cell.Setting == live.Recorded || c.All {
				for _, w := range windows {
					if err := w.write(writer); err != nil {
						return err
					}
				}
				live.Blocks[cell.Load] = append(live.Blocks[cell.Load], [2]int{recorded, recorded + len(windows)})
				recorded += len(windows)
			}
			var measured counterfactual.Recording
			for _, w := range windows {
				measured.Add(&w.sample)
			}
			if err := measured.Check(); err != nil {
				return fmt.Errorf("cell %s at %.0f/s: %w", cell.Setting, live.Loads[cell.Load], err)
			}
			all, _ := measured.Windows()
			outcome := measured.Measured([][2]int{{0, all}}, model.Objective{SLO: time.Second, Quantile: 0.99})
			cell.P50Us = append(cell.P50Us, outcome.P50Us)
			cell.P90Us = append(cell.P90Us, outcome.P90Us)
			cell.CPUPerRequestUs = append(cell.CPUPerRequestUs, outcome.CPUPerRequestUs)
		}
	}
	progress.end()
	data, err := json.MarshalIndent(live, "", "  ")
	if err != nil {
		return fmt.Errorf("encode the measurements: %w", err)
	}
	if err := os.WriteFile(filepath.Join(dir, counterfactualCells), append(data, '\n'), 0o644); err != nil {
		return err
	}
	_, clientErr := client.Stop(ctx)
	_, serverErr := server.Stop(ctx)
	return errors.Join(clientErr, serverErr)
}

// observedWindow is a sample and the single events of its window.
type observedWindow struct {
	sample model.Sample
	events []model.Events
}

func (w observedWindow) write(to *trace.Writer) error {
	err := to.Write(w.sample)
	for _, e := range w.events {
		err = errors.Join(err, to.WriteEvents(e))
	}
	return err
}

// cell measures one setting at one load and returns its windows.
func (c *counterfactualCmd) cell(ctx context.Context, bed *testbed.Bed, client *workload.Client, source *probe.Source, cell *counterfactual.LiveCell, rate float64, round int) ([]observedWindow, error) {
	setting, err := sim.ParseSetting(cell.Setting)
	if err != nil {
		return nil, err
	}
	if err := setBed(bed, setting.NAPI); err != nil {
		return nil, err
	}
	name := fmt.Sprintf("%s %v %d", cell.Setting, rate, round)
	phase := workload.Phase{Name: name, Rate: rate, Fresh: true}
	if c.Bursts {
		phase.Burst, phase.BurstRate = burstRequests, burstRate
	}
	if _, err := client.Phase(ctx, phase); err != nil {
		return nil, err
	}
	var out []observedWindow
	for window := range 4 { // the first may have begun before the phase, the second settles
		sample, err := source.Next(ctx)
		if err != nil {
			return nil, err
		}
		if window >= 2 {
			out = append(out, observedWindow{sample, source.Events()})
		}
	}
	return out, nil
}

func printCounterfactual(std streams, v counterfactual.Verdict, asJSON bool) error {
	if asJSON {
		return printJSON(std.out, v)
	}
	t := newTable(std.out, "SETTING", "REQUESTS/S", "P50 LIVE", "PREDICTED", "P90 LIVE", "PREDICTED", "CPU/REQUEST LIVE", "PREDICTED", "")
	band := func(b counterfactual.Band) string {
		return fmt.Sprintf("%.0f us [%.0f, %.0f]", b.Median, b.Low, b.High)
	}
	for _, c := range v.Cells {
		note := ""
		if c.Recorded {
			note = "recorded"
		}
		cpu := c.Predicted.CPUPerRequestUs
		t.row(c.Setting, fmt.Sprintf("%.0f", c.RequestsPerSecond),
			fmt.Sprintf("%.0f us", c.Measured.P50Us), band(c.Predicted.P50Us),
			fmt.Sprintf("%.0f us", c.Measured.P90Us), band(c.Predicted.P90Us),
			fmt.Sprintf("%.1f us", c.Measured.CPUPerRequestUs), fmt.Sprintf("%.1f us [%.1f, %.1f]", cpu.Median, cpu.Low, cpu.High), note)
	}
	if err := t.flush(); err != nil {
		return err
	}
	outcome := "within the limits"
	switch {
	case v.Undecided:
		outcome = "undecided, as no two settings differ beyond noise; more --rounds tell"
	case !v.Met:
		outcome = "not within the limits"
	}
	if v.EventWindows > 0 {
		fmt.Fprintf(std.out, "\nwith the single events of %s", model.Count(v.EventWindows, "window"))
	} else {
		fmt.Fprint(std.out, "\nwithout single events")
	}
	if v.Burst > 0 {
		fmt.Fprintf(std.out, "; requests came in bursts of %.0f on the average", v.Burst)
	}
	if !v.Fitted.AtRandom() {
		fmt.Fprintf(std.out, "\nfitted to the recording: %s", burstsText(v.Fitted))
	}
	fmt.Fprintf(std.out, "\nmedian errors: p50 %.0f%% (limit %.0f%%), p90 %.0f%% (%.0f%%), CPU per request %.0f%% (%.0f%%); %d of %d orders by CPU wrong: %s\n",
		100*v.P50Error, 100*counterfactual.P50Limit, 100*v.P90Error, 100*counterfactual.P90Limit,
		100*v.CPUError, 100*counterfactual.CPULimit, len(v.Wrong), v.Pairs, outcome)
	for _, wrong := range v.Wrong {
		fmt.Fprintln(std.out, "wrong order:", wrong)
	}
	fmt.Fprintln(std.out, toldText(v.Told))
	return nil
}

// toldText says what the recording told of the costs.
func toldText(told []counterfactual.Told) string {
	var fitted, assumed []string
	for _, t := range told {
		text := fmt.Sprintf("%s %v (x/÷ %.2f)", strings.TrimSuffix(t.Name, "_ns"), t.Value, t.Factor)
		if t.Assumed() {
			assumed = append(assumed, text)
		} else {
			fitted = append(fitted, text)
		}
	}
	none := func(list []string) string {
		if len(list) == 0 {
			return "none"
		}
		return strings.Join(list, ", ")
	}
	return "costs fitted to the recording: " + none(fitted) + "\ncosts assumed, the recording does not tell: " + none(assumed)
}

// burstsText says how requests come in bursts, and how sure that is.
func burstsText(b counterfactual.ToldBursts) string {
	return fmt.Sprintf("bursts of %.1f requests (x/÷ %.2f), %.0f/s within one (x/÷ %.2f), and %.1f%% of the requests alone (x/÷ %.2f)",
		b.Requests, b.Factors.Requests, b.PerSecond, b.Factors.PerSecond, 100*b.Alone, b.Factors.Alone)
}
