package probe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"autotune/actuate/netdev"
	"autotune/bpf"
	"autotune/experiments/testbed"
	"autotune/model"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// programCost is what one program took by the kernel's account (BPF statistics).
// The account itself reads a clock twice per run, which is in every figure.
type programCost struct {
	Program string  `json:"program"`
	Runs    uint64  `json:"runs"`
	Mean    float64 `json:"mean_ns"`
	// Empty is the mean of an empty program on the same hook in the same run.
	Empty float64 `json:"empty_ns"`
	Ratio float64 `json:"ratio"`
	spent time.Duration
}

// probeCost is the outcome of one load.
type probeCost struct {
	Kind     string        `json:"kind"`
	Name     string        `json:"name"`
	Requests float64       `json:"requests_per_s"`
	Span     time.Duration `json:"span_ns"`
	// Gross is the time of all programs as a share of one CPU; Net is without
	// what empty programs on the same hooks took.
	Gross     float64       `json:"gross_share"`
	Net       float64       `json:"net_share"`
	Bpftrace  *float64      `json:"bpftrace_share"`
	PollEvery uint32        `json:"poll_every"`
	Sockets   uint32        `json:"sample_every"`
	Programs  []programCost `json:"programs"`
}

// empties are programs that do nothing, by the name of the hook.
type empties struct {
	programs map[string]*ebpf.Program
	links    []link.Link
	close    func()
}

func (e empties) detach() {
	for _, lnk := range e.links {
		lnk.Close()
	}
	e.close()
}

func newEmpties(tb testing.TB) empties {
	tb.Helper()
	spec, err := bpf.LoadSelftest()
	if err != nil {
		tb.Fatal(err)
	}
	collection, err := ebpf.NewCollection(spec)
	if err != nil {
		tb.Fatal(err)
	}
	found := empties{programs: make(map[string]*ebpf.Program), close: collection.Close}
	for name, program := range collection.Programs {
		hook, ok := strings.CutPrefix(name, "empty_")
		if name == bpf.SelftestProgClockOnly {
			hook, ok = name, true
		}
		if !ok {
			continue
		}
		lnk, err := link.AttachTracing(link.TracingOptions{Program: program})
		if err != nil {
			tb.Fatal(err)
		}
		found.links = append(found.links, lnk)
		found.programs[hook] = program
	}
	return found
}

// bpftrace runs the script that counts the same, and returns its programs. It
// sees a tracefs that is mounted for it alone.
func bpftrace(tb testing.TB) map[ebpf.ProgramID]*ebpf.Program {
	tb.Helper()
	if _, err := exec.LookPath("bpftrace"); err != nil {
		tb.Logf("bpftrace is not compared: %v (install it)", err)
		return nil
	}
	before := listPrograms(tb)
	cmd := exec.Command("sh", "-c", "mount -t tracefs tracefs /sys/kernel/tracing && exec bpftrace -f json testdata/bench.bt")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := cmd.Process.Signal(unix.SIGINT); err != nil {
			tb.Error(err)
		}
		io.Copy(io.Discard, stdout)
		if err := cmd.Wait(); err != nil {
			tb.Errorf("bpftrace: %v", err)
		}
	})
	// It says so when it has attached its programs.
	buf := make([]byte, 4096)
	for text := ""; !strings.Contains(text, "attached_probes"); {
		n, err := stdout.Read(buf)
		if err != nil {
			tb.Fatalf("bpftrace: %v", err)
		}
		text += string(buf[:n])
	}
	for deadline := time.Now().Add(5 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		found := listPrograms(tb)
		for id, program := range found {
			if _, ok := before[id]; ok {
				program.Close()
				delete(found, id)
			}
		}
		if len(found) >= 11 {
			return found
		}
		if time.Now().After(deadline) {
			tb.Fatalf("bpftrace loaded %d programs, want 11", len(found))
		}
	}
}

// listPrograms returns every tracepoint program on the host.
func listPrograms(tb testing.TB) map[ebpf.ProgramID]*ebpf.Program {
	tb.Helper()
	found := make(map[ebpf.ProgramID]*ebpf.Program)
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if err != nil {
			return found
		}
		id = next
		program, err := ebpf.NewProgramFromID(id)
		if err != nil {
			continue
		}
		if program.Type() != ebpf.TracePoint {
			program.Close()
			continue
		}
		found[id] = program
	}
}

// runCost is what a program has taken since some earlier reading.
type runCost struct {
	runs  uint64
	spent time.Duration
}

func readCost(tb testing.TB, program *ebpf.Program) runCost {
	tb.Helper()
	stats, err := program.Stats()
	if err != nil {
		tb.Fatal(err)
	}
	return runCost{stats.RunCount, stats.Runtime}
}

func (c runCost) mean() float64 { return float64(c.spent.Nanoseconds()) / float64(max(c.runs, 1)) }

// bothEnds follows the NAPIs of both ends: a poll of one that is not followed is
// cheap, and must not flatter the mean.
type bothEnds struct {
	*bed
	client device
}

func newBothEnds(tb testing.TB, b *bed) bothEnds {
	tb.Helper()
	ns := b.Client()
	ends := bothEnds{bed: b, client: device{first: model.Queue{Netns: ns.Inode, Ifindex: ns.Ifindex}, ifname: ns.Ifname}}
	err := ns.Do(func() error {
		var err error
		ends.client.client, err = netdev.New(netdev.Options{})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := ends.client.client.Close(); err != nil {
			tb.Error(err)
		}
	})
	return ends
}

// NAPIs implements [Inventory].
func (e bothEnds) NAPIs(ctx context.Context) ([]model.NAPI, error) {
	server, err := e.bed.NAPIs(ctx)
	client, clientErr := e.client.NAPIs(ctx)
	return append(server, client...), errors.Join(err, clientErr)
}

// measureLoad measures the programs of a source under load, for twice as many
// windows. The program that runs first on a hook finds the caches cold, for the
// kernel's part of the work as well, so that in one half the empty ones are
// attached before ours and in the other half after.
func measureLoad(tb testing.TB, name string, options Options, settings model.Settings, rate float64, windows int) probeCost {
	tb.Helper()
	bed := newBed(tb, testbed.Options{Threaded: true, ServerCPU: 1, ClientReceive: testbed.ClientReceiveThread})
	bed.set(tb, settings)
	bed.serve(tb, nil)
	empty := newEmpties(tb)
	options.Inventory = newBothEnds(tb, bed)
	s := bed.open(tb, options)
	other := bpftrace(tb)
	bed.phase(tb, "load", rate)
	// The source finds its level first.
	for range 8 {
		next(tb, s)
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		tb.Fatal(err)
	}
	defer stats.Close()
	loaded := s.kernel.(*programs).attached
	ours, none := make(map[string]runCost), make(map[string]runCost)
	var theirs time.Duration
	var total totals
	var span time.Duration
	for half := range 2 {
		if half == 1 {
			empty.detach()
			empty = newEmpties(tb)
			next(tb, s)
		}
		before := make(map[*ebpf.Program]runCost)
		all := slices.Collect(maps.Values(empty.programs))
		for _, a := range loaded {
			all = append(all, a.program)
		}
		all = slices.AppendSeq(all, maps.Values(other))
		for _, program := range all {
			before[program] = readCost(tb, program)
		}
		began := time.Now()
		for range windows {
			total.add(next(tb, s))
		}
		span += time.Since(began)
		since := func(program *ebpf.Program) runCost {
			now, then := readCost(tb, program), before[program]
			return runCost{now.runs - then.runs, now.spent - then.spent}
		}
		for _, a := range loaded {
			ours[a.name] = ours[a.name].plus(since(a.program))
		}
		for hook, program := range empty.programs {
			none[hook] = none[hook].plus(since(program))
		}
		for _, program := range other {
			theirs += since(program).spent
		}
	}
	empty.detach()
	last := total.last
	cost := probeCost{
		Kind: "probe_cost", Name: name, Span: span,
		// Each end receives one packet per request.
		Requests:  float64(total.polls().Packets) / 2 / total.span.Seconds(),
		PollEvery: last.Probe.PollEvery, Sockets: last.Queues[0].SampleEvery,
	}
	for _, a := range loaded {
		got, none := ours[a.name], none[a.name]
		if got.runs == 0 || none.runs == 0 {
			// Nothing of the kind happened.
			continue
		}
		p := programCost{Program: a.name, Runs: got.runs, Mean: got.mean(), Empty: none.mean(), spent: got.spent}
		p.Ratio = p.Mean / p.Empty
		cost.Programs = append(cost.Programs, p)
		cost.Gross += got.spent.Seconds() / span.Seconds()
		cost.Net += (got.spent.Seconds() - float64(got.runs)*none.mean()/1e9) / span.Seconds()
	}
	clock, poll := none[bpf.SelftestProgClockOnly], none[bpf.ReceiveProgNapiPoll]
	cost.Programs = append(cost.Programs, programCost{
		Program: "(one clock read)", Runs: clock.runs, Mean: clock.mean(), Empty: poll.mean(), Ratio: clock.mean() / poll.mean(),
	})
	if other != nil {
		share := theirs.Seconds() / span.Seconds()
		cost.Bpftrace = &share
		for _, program := range other {
			program.Close()
		}
	}
	return cost
}

func (c runCost) plus(o runCost) runCost { return runCost{c.runs + o.runs, c.spent + o.spent} }

func (c *probeCost) markdown(w io.Writer) {
	fmt.Fprintf(w, "\n### %s: %.0f requests/s, one socket in %d followed, one poll in %d timed\n\n", c.Name, c.Requests, c.Sockets, c.PollEvery)
	fmt.Fprintf(w, "| program | runs/s | mean ns | empty ns | ratio | share of a CPU |\n|---|---|---|---|---|---|\n")
	for _, p := range c.Programs {
		fmt.Fprintf(w, "| %s | %.0f | %.0f | %.0f | %.2f | %.3f%% |\n",
			p.Program, float64(p.Runs)/c.Span.Seconds(), p.Mean, p.Empty, p.Ratio, 100*p.spent.Seconds()/c.Span.Seconds())
	}
	fmt.Fprintf(w, "\nTogether %.2f%% of a CPU, %.2f%% beyond empty programs", 100*c.Gross, 100*c.Net)
	if c.Bpftrace != nil {
		fmt.Fprintf(w, "; the bpftrace script beside it %.2f%%", 100**c.Bpftrace)
	}
	fmt.Fprintln(w, ".")
}

// Prints Markdown, and JSON lines after it. Fails where a limit is missed.
func BenchmarkProbeCost(b *testing.B) {
	testbed.Require(b)
	testbed.Alone(b)
	const rate = 40000
	var costs []probeCost
	for b.Loop() {
		b.Run("everything", func(b *testing.B) {
			costs = append(costs, measureLoad(b, "everything sampled", Options{Interval: liveInterval, Budget: -1}, model.Settings{}, rate, 10))
		})
		b.Run("deferred", func(b *testing.B) {
			costs = append(costs, measureLoad(b, "everything sampled, interrupts deferred", Options{Interval: liveInterval, Budget: -1}, deferral(200*time.Microsecond), rate, 10))
		})
		b.Run("default", func(b *testing.B) {
			costs = append(costs, measureLoad(b, "default", Options{Interval: time.Second, Budget: defaultBudget}, model.Settings{}, rate, 2))
		})
	}
	for i := range costs {
		c := &costs[i]
		c.markdown(os.Stdout)
		poll := slices.IndexFunc(c.Programs, func(p programCost) bool { return p.Program == bpf.ReceiveProgNapiPoll })
		within(b, c.Name+": napi_poll by an empty program", c.Programs[poll].Ratio, 0, 2.5)
		// Without a budget every socket is followed, which nobody does under load.
		if c.Name == "default" {
			within(b, "default: share of a CPU beyond empty programs", c.Net, 0, 0.03)
		}
		if c.Bpftrace != nil {
			within(b, c.Name+": share of a CPU by that of bpftrace", c.Gross / *c.Bpftrace, 0, 1)
		}
	}
	read := mapRead(b)
	fmt.Printf("\nReading the maps of 64 NAPIs and 2 CPUs takes %v.\n\n", read)
	within(b, "map read", read, 0, 150*time.Microsecond)
	out := json.NewEncoder(os.Stdout)
	for i := range costs {
		out.Encode(&costs[i])
	}
	out.Encode(struct {
		Kind string        `json:"kind"`
		Read time.Duration `json:"read_ns"`
	}{"map_read", read})
}

// mapRead returns the median time of a reading of 64 NAPIs on 2 CPUs into a
// buffer that was used before.
func mapRead(tb testing.TB) time.Duration {
	tb.Helper()
	sizes := mapSizes{napis: 64, cpus: 2}
	_, collection, err := newLoader(sizes)
	if err != nil {
		tb.Fatal(err)
	}
	p := newPrograms(collection, sizes)
	defer p.close()
	p.used = sizes.napis
	var r reading
	var times []time.Duration
	for range 300 {
		began := time.Now()
		if err := p.read(&r); err != nil {
			tb.Fatal(err)
		}
		times = append(times, time.Since(began))
	}
	slices.Sort(times)
	return times[len(times)/2]
}
