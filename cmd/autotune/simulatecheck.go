package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"autotune/actuate"
	"autotune/actuate/netdev"
	"autotune/experiments/stats"
	"autotune/experiments/testbed"
	"autotune/experiments/workload"
	"autotune/model"
	"autotune/model/sim"
	"autotune/probe"
)

// simulateCheckCmd compares the simulator with a real kernel: one queue and
// one server in a test bed, three flush timeouts at two loads, against the
// simulator fitted to the same bed at two other settings.
type simulateCheckCmd struct {
	Rounds   int           `help:"How often each cell is measured; at least 5 for intervals." default:"5"`
	Window   time.Duration `help:"Length of a measurement." default:"500ms"`
	Recorded string        `help:"Judge this record instead of measuring." type:"existingfile" placeholder:"FILE.json"`
	Output   string        `short:"o" help:"Write what was measured to this file." type:"path" placeholder:"FILE.json"`
	Seed     uint64        `help:"Names the simulator's and the client's random numbers." default:"1"`
	JSON     bool          `help:"One object per line." name:"json"`
}

// bedRecord is what was measured live.
type bedRecord struct {
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	// PacketsPerRequest is what the NAPI received per request answered.
	PacketsPerRequest float64       `json:"packets_per_request"`
	Connections       int           `json:"connections"`
	ServiceTime       time.Duration `json:"service_time_ns"`
	Cells             []bedCell     `json:"cells"`
}

// bedCell is one setting at one load; its values are by round.
type bedCell struct {
	Setting string  `json:"setting"`
	Rate    float64 `json:"requests_per_s"`
	// Fitted cells are what the simulator is fitted to; it is judged by the
	// others.
	Fitted bool      `json:"fitted"`
	P50Us  []float64 `json:"p50_us"`
	Polls  []float64 `json:"polls_per_s"`
}

const (
	bedConnections = 128
	bedService     = 2 * time.Microsecond
	bedInterrupts  = "defer=0,flush=0s"
)

// bedCells are the cells of the check.
func bedCells() []bedCell {
	var out []bedCell
	for _, rate := range []float64{5000, 20000} {
		for _, s := range []struct {
			setting string
			fitted  bool
		}{
			{bedInterrupts, true},
			{"defer=100,flush=1ms", true},
			{"defer=100,flush=50us", false},
			{"defer=100,flush=200us", false},
			{"defer=100,flush=500us", false},
		} {
			out = append(out, bedCell{Setting: s.setting, Rate: rate, Fitted: s.fitted})
		}
	}
	return out
}

// Run implements the command: 0 means that the simulator agrees, 4 that it
// does not.
func (c *simulateCheckCmd) Run(ctx context.Context, std streams) error {
	if c.Rounds < 1 || c.Window < 50*time.Millisecond {
		return usageError(errors.New("--rounds must be positive and --window at least 50ms"))
	}
	var record bedRecord
	var err error
	if c.Recorded != "" {
		var data []byte
		if data, err = os.ReadFile(c.Recorded); err != nil {
			return usageError(err)
		}
		if err := json.Unmarshal(data, &record); err != nil {
			return usageError(fmt.Errorf("%s is no record of a check: %w", c.Recorded, err))
		}
	} else {
		if err := demoPossible(); err != nil {
			return cannotError(err)
		}
		if record, err = c.measure(ctx, std); err != nil {
			return err
		}
	}
	if c.Output != "" {
		data, err := json.MarshalIndent(record, "", "  ")
		if err != nil {
			return fmt.Errorf("encode the record: %w", err)
		}
		if err := os.WriteFile(c.Output, append(data, '\n'), 0o644); err != nil {
			return fmt.Errorf("write the record: %w", err)
		}
	}
	verdict, err := judgeBed(ctx, record, c.Seed)
	switch {
	case err != nil && c.Recorded != "" && ctx.Err() == nil:
		return usageError(fmt.Errorf("%s cannot be judged: %w", c.Recorded, err))
	case err != nil:
		return err
	}
	if err := verdict.print(std, c.JSON); err != nil {
		return err
	}
	if !verdict.Met {
		return &exitError{code: exitMissed}
	}
	return nil
}

// measure runs the cells in a test bed, each once per round, in an order that
// turns by one each round.
func (c *simulateCheckCmd) measure(ctx context.Context, std streams) (record bedRecord, err error) {
	self, err := os.Executable()
	if err != nil {
		return record, fmt.Errorf("find this program, to start it as load server and client: %w", err)
	}
	const serverCPU, clientCPU = 0, 1
	bed, err := testbed.New(ctx, testbed.Options{
		Prefix: "simcheck", Threaded: true, Realtime: true, ServerCPU: serverCPU, ClientCPU: clientCPU,
	})
	if err != nil {
		return record, cannotError(fmt.Errorf("make a test bed: %w", err))
	}
	defer func() { err = errors.Join(err, bed.Close()) }()
	launch := func(ns *testbed.Namespace, role string) workload.Launch {
		return workload.Launch{Command: exec.Command(self, "experiment", role), Start: ns.Start}
	}
	server, err := workload.StartServer(ctx, launch(bed.Server(), "server"), workload.ServerConfig{
		Addr: netip.AddrPortFrom(bed.Server().Addr, 0), CPU: serverCPU, RuntimeCPU: clientCPU,
		ServiceTime: bedService, Realtime: true,
	}, nil)
	if err != nil {
		return record, fmt.Errorf("start the server: %w", err)
	}
	client, err := workload.StartClient(ctx, launch(bed.Client(), "client"), workload.ClientConfig{
		Addr: server.Addr(), CPU: clientCPU, RuntimeCPU: clientCPU, Connections: bedConnections,
		Nice: -10, Seed: c.Seed, Interval: c.Window / 5,
	}, nil)
	if err != nil {
		return record, fmt.Errorf("start the client: %w", err)
	}
	host, err := actuate.Open(ctx, actuate.Options{
		Namespace: actuate.ParseNamespace(bed.Server().Path), Ifaces: []string{bed.Server().Ifname}, ReadOnly: true,
	})
	if err != nil {
		return record, err
	}
	defer func() { err = errors.Join(err, host.Close()) }()
	source, err := probe.Open(ctx, probe.Options{Interval: c.Window, Inventory: host})
	if err != nil {
		return record, err
	}
	defer func() { err = errors.Join(err, source.Close()) }()

	release, err := kernelRelease()
	if err != nil {
		return record, err
	}
	record = bedRecord{Kernel: release, CPUs: runtime.NumCPU(), Connections: bedConnections, ServiceTime: bedService, Cells: bedCells()}
	var packets, requests float64
	progress := newTicker(std.err)
	for round := range c.Rounds {
		for i := range record.Cells {
			cell := &record.Cells[(i+round)%len(record.Cells)]
			progress.say(fmt.Sprintf("round %d of %d, cell %d of %d", round+1, c.Rounds, i+1, len(record.Cells)))
			setting, err := sim.ParseSetting(cell.Setting)
			if err != nil {
				return record, err
			}
			if err := setBed(bed, setting.NAPI); err != nil {
				return record, err
			}
			name := fmt.Sprintf("%s %v %d", cell.Setting, cell.Rate, round)
			if _, err := client.Phase(ctx, workload.Phase{Name: name, Rate: cell.Rate, Settle: c.Window, Fresh: true}); err != nil {
				return record, err
			}
			var sample model.Sample
			for range 3 { // the first may have begun before the phase, the second settles
				if sample, err = source.Next(ctx); err != nil {
					return record, err
				}
			}
			if _, err := client.Phase(ctx, workload.Phase{Name: "between", Rate: cell.Rate}); err != nil {
				return record, err
			}
			summary := workload.Summarize(client.Intervals(), name)
			if summary.Completed == 0 || len(sample.Queues) != 1 {
				return record, fmt.Errorf("cell %s: %d requests answered, %d queues seen", name, summary.Completed, len(sample.Queues))
			}
			polls := sample.Queues[0].Polls()
			cell.P50Us = append(cell.P50Us, float64(summary.Latency.Quantile(0.5))/1e3)
			cell.Polls = append(cell.Polls, float64(polls.Polls)/sample.Span.Seconds())
			packets += float64(polls.Packets) / sample.Span.Seconds()
			requests += summary.AchievedRate
		}
	}
	progress.end()
	record.PacketsPerRequest = packets / requests
	_, clientErr := client.Stop(ctx)
	_, serverErr := server.Stop(ctx)
	return record, errors.Join(clientErr, serverErr)
}

// kernelRelease is what uname -r says.
func kernelRelease() (string, error) {
	data, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "", fmt.Errorf("read the kernel's version: %w", err)
	}
	return strings.TrimSpace(string(data)), nil
}

func setBed(bed *testbed.Bed, s model.Settings) error {
	return bed.Server().Do(func() (err error) {
		client, err := netdev.New(netdev.Options{})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, client.Close()) }()
		napis, err := bed.NAPIs()
		if err != nil {
			return err
		}
		for _, n := range napis {
			if err := client.SetNAPI(n.ID, netdev.NAPIUpdate{
				DeferHardIRQs: &s.DeferHardIRQs, GROFlushTimeout: &s.GROFlushTimeout, IRQSuspendTimeout: &s.IRQSuspendTimeout,
			}); err != nil {
				return err
			}
		}
		return nil
	})
}

// bedVerdict is how the simulator compares with the bed.
type bedVerdict struct {
	Kind  string        `json:"kind"` // "simulator_check"
	Cells []bedCompared `json:"cells"`
	// MedianP50 and MedianPolls are medians of the absolute relative errors
	// over the cells that were not fitted.
	MedianP50   float64 `json:"median_p50_error"`
	MedianPolls float64 `json:"median_polls_error"`
	// Pairs are the pairs of settings at one load whose live difference in
	// p50 excludes zero, and WrongSigns those that the simulator orders the
	// other way.
	Pairs      int      `json:"pairs"`
	WrongSigns []string `json:"wrong_signs"`
	Met        bool     `json:"met"`
}

type bedCompared struct {
	Setting    string  `json:"setting"`
	Rate       float64 `json:"requests_per_s"`
	Fitted     bool    `json:"fitted"`
	LiveP50    float64 `json:"live_p50_us"`
	SimP50     float64 `json:"simulated_p50_us"`
	LivePolls  float64 `json:"live_polls_per_s"`
	SimPolls   float64 `json:"simulated_polls_per_s"`
	liveRounds []float64
}

// bedTolerance is the largest median error of p50 and polls per second.
const bedTolerance = 0.25

// judgeBed fits the simulator to the fitted cells and compares the others.
func judgeBed(ctx context.Context, record bedRecord, seed uint64) (bedVerdict, error) {
	v := bedVerdict{Kind: "simulator_check", WrongSigns: []string{}}
	start, err := sim.LoadPreset("veth")
	if err != nil {
		return v, err
	}
	start.Host.Connections = record.Connections
	start.Cost.RequestUser = record.ServiceTime
	start.Client.ACKShare = min(max(record.PacketsPerRequest-1, 0), 1)
	movable := []string{"request_system_ns", "poll_ns", "interrupt_nic_ns", "wake_ns", "idle_exit_ns", "round_trip_ns", "jitter_ns"}
	o := sim.FitOptions{
		Start: start, Rounds: 6, Span: 200 * time.Millisecond, Seed: seed,
		Parameters: slices.DeleteFunc(sim.Parameters(), func(p sim.Parameter) bool { return !slices.Contains(movable, p.Name) }),
	}
	for _, cell := range record.Cells {
		if !cell.Fitted {
			continue
		}
		setting, err := sim.ParseSetting(cell.Setting)
		if err != nil {
			return v, err
		}
		o.Observations = append(o.Observations, sim.Observation{
			Case: setting, Load: sim.Constant(cell.Rate),
			Quantities: []sim.Quantity{
				{Name: "p50", Want: stats.Median(cell.P50Us), Tolerance: 0.05, Of: func(r *sim.Result) float64 { return r.P50Us }},
				{Name: "polls/s", Want: stats.Median(cell.Polls), Tolerance: 0.05, Of: func(r *sim.Result) float64 { return r.Polls }},
			},
		})
	}
	fitted, err := sim.Fit(ctx, o)
	if err != nil {
		return v, err
	}
	var p50s, polls []float64
	for _, cell := range record.Cells {
		setting, err := sim.ParseSetting(cell.Setting)
		if err != nil {
			return v, err
		}
		r, err := sim.Run(ctx, sim.Options{
			Preset: fitted, Case: setting, Load: sim.Constant(cell.Rate), Seed: seed + 1,
			Duration: 2 * time.Second, Warmup: 100 * time.Millisecond,
		})
		if err != nil {
			return v, err
		}
		compared := bedCompared{
			Setting: cell.Setting, Rate: cell.Rate, Fitted: cell.Fitted,
			LiveP50: stats.Median(cell.P50Us), SimP50: r.P50Us, LivePolls: stats.Median(cell.Polls), SimPolls: r.Polls,
			liveRounds: cell.P50Us,
		}
		if !cell.Fitted {
			p50s = append(p50s, relativeError(compared.SimP50, compared.LiveP50))
			polls = append(polls, relativeError(compared.SimPolls, compared.LivePolls))
		}
		v.Cells = append(v.Cells, compared)
	}
	if len(p50s) == 0 {
		return v, errors.New("the record has no cell that was not fitted: nothing to judge by")
	}
	v.MedianP50, v.MedianPolls = stats.Median(p50s), stats.Median(polls)
	v.signs()
	v.Met = v.MedianP50 <= bedTolerance && v.MedianPolls <= bedTolerance && len(v.WrongSigns) == 0
	return v, nil
}

// signs compares the order of each pair of settings at one load.
func (v *bedVerdict) signs() {
	for i, a := range v.Cells {
		for _, b := range v.Cells[:i] {
			if a.Fitted || b.Fitted || a.Rate != b.Rate {
				continue
			}
			ratio := stats.Bootstrap{}.Ratio(a.liveRounds, b.liveRounds)
			if !ratio.Bounded() || ratio.Low <= 1 && ratio.High >= 1 {
				continue
			}
			v.Pairs++
			if (ratio.Estimate > 1) != (a.SimP50 > b.SimP50) {
				v.WrongSigns = append(v.WrongSigns, fmt.Sprintf("%s against %s at %.0f/s", a.Setting, b.Setting, a.Rate))
			}
		}
	}
}

func (v *bedVerdict) print(std streams, asJSON bool) error {
	if asJSON {
		return printJSON(std.out, v)
	}
	t := newTable(std.out, "SETTING", "REQUESTS/S", "P50 LIVE", "SIMULATED", "POLLS/S LIVE", "SIMULATED", "")
	for _, c := range v.Cells {
		note := ""
		if c.Fitted {
			note = "fitted"
		}
		t.row(c.Setting, fmt.Sprintf("%.0f", c.Rate), fmt.Sprintf("%.0f us", c.LiveP50), fmt.Sprintf("%.0f us", c.SimP50),
			fmt.Sprintf("%.0f", c.LivePolls), fmt.Sprintf("%.0f", c.SimPolls), note)
	}
	if err := t.flush(); err != nil {
		return err
	}
	outcome := "the simulator agrees"
	if !v.Met {
		outcome = "the simulator does not agree"
	}
	fmt.Fprintf(std.out, "\nmedian error of p50 %.0f%%, of polls/s %.0f%% (limit %.0f%%); %d of %d signs wrong: %s\n",
		100*v.MedianP50, 100*v.MedianPolls, 100*bedTolerance, len(v.WrongSigns), v.Pairs, outcome)
	for _, wrong := range v.WrongSigns {
		fmt.Fprintln(std.out, "wrong sign:", wrong)
	}
	return nil
}

func relativeError(got, want float64) float64 { return max(got/want-1, 1-got/want) }
