package main

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"autotune/experiments/compare"
	"autotune/experiments/counterfactual"
	"autotune/model/sim"
	"autotune/probe/trace"
)

// simulatedTrace says what recordSimulated records.
type simulatedTrace struct {
	name     string
	queues   int
	windows  int
	rates    []float64 // requests per second of the host, for five windows each
	prefer   bool
	unseen   bool // delays are not observed
	governor string
	later    string // the governor from the middle on
	usecs    uint32
	disabled bool // the deepest idle state
}

// recordSimulated writes a trace of a simulated host in windows of 100 ms.
func recordSimulated(t *testing.T, dir string, o simulatedTrace) string {
	t.Helper()
	preset, err := sim.LoadPreset("veth")
	if err != nil {
		t.Fatal(err)
	}
	machine := *preset
	machine.Host.Queues = max(o.queues, 1)
	machine.Host.Connections = 16 * machine.Host.Queues
	machine.Host.HeaviestShare = 0.75
	host, err := sim.New(sim.Options{
		Preset: &machine, Case: sim.Case{Wait: sim.Wait{Prefer: o.prefer, Budget: 64}},
		Load: sim.Steps{PerSecond: o.rates, Each: 500 * time.Millisecond}, Seed: 7, Window: 100 * time.Millisecond, Workers: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	conditions := func(governor string) trace.Conditions {
		return trace.Conditions{
			Devices: []trace.Device{{Ifindex: 2, Ifname: "eth7", Coalescing: &trace.Coalescing{RXUsecs: &o.usecs}}},
			CPUs:    []trace.CPU{{Governor: &governor, IdleStates: []trace.IdleState{{Name: "C6", Latency: 133 * time.Microsecond, Disabled: o.disabled}}}},
		}
	}
	path := filepath.Join(dir, o.name)
	w, err := trace.Create(path, trace.Header{Host: "server-1", Interval: 100 * time.Millisecond, Conditions: conditions(o.governor)}, trace.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range o.windows {
		sample, err := host.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if o.unseen {
			sample.Latency = nil
			for i := range sample.Queues {
				sample.Queues[i].Delay = nil
			}
		}
		if err := w.Write(sample); err != nil {
			t.Fatal(err)
		}
		if o.later != "" && i == o.windows/2 {
			if err := w.WriteConditions(sample.At, conditions(o.later)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func twoQueues(name string) simulatedTrace {
	return simulatedTrace{name: name, queues: 2, windows: 20, rates: []float64{2000, 6000}, governor: "performance", usecs: 8}
}

// overTraces is a comparison of a second or two.
func overTraces(traces string, more ...string) []string {
	return append([]string{
		"compare", "--traces", traces, "--preset", "veth", "--policies", "aimd", "--seeds", "2", "--windows", "20",
		"--interval", "100ms", "--max-flush", "20us",
	}, more...)
}

func TestCompareOverTracesGivesTheSameBytesOnAnyNumberOfCoresAndInShards(t *testing.T) {
	dir := t.TempDir()
	path := recordSimulated(t, dir, twoQueues("monday.trace.zst"))
	whole := filepath.Join(dir, "whole")
	out := done(t, overTraces(path, "-o", whole, "-j", "1")...)
	for _, want := range []string{"\nmonday\n", "deferral regime", "the server's delay", "2 queues", "best-static", "aimd"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in:\n%s", want, out)
		}
	}
	files := []string{"manifest.json", "windows.jsonl.zst", "cells.jsonl", "summary.jsonl", "report.txt", "report.html", "steady.json"}
	two := filepath.Join(dir, "two")
	done(t, overTraces(path, "-o", two, "-j", "2")...)
	for _, name := range files {
		if read(t, whole, name) != read(t, two, name) {
			t.Errorf("%s of two goroutines is not that of one", name)
		}
	}
	var shards []string
	for _, shard := range []string{"1/2", "2/2"} {
		to := filepath.Join(dir, "shard"+shard[:1])
		shards = append(shards, to)
		done(t, overTraces(path, "-o", to, "--shard", shard, "--table", filepath.Join(whole, "steady.json"))...)
	}
	// Whoever joins the shards need not have the recording.
	other := twoQueues("monday.trace.zst")
	other.rates = []float64{3000}
	again := recordSimulated(t, t.TempDir(), other)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	merged := filepath.Join(dir, "merged")
	done(t, append([]string{"compare", "merge", "-o", merged}, shards...)...)
	for _, name := range files[:len(files)-1] {
		if read(t, whole, name) != read(t, merged, name) {
			t.Errorf("%s of the merged shards is not that of the whole", name)
		}
	}
	done(t, overTraces(again, "-o", shards[1], "--shard", "2/2", "--force")...)
	code, _, errs := call(t, append([]string{"compare", "merge", "-o", merged}, shards...)...)
	if code != exitUsage || !strings.Contains(errs, "load_sha256") {
		t.Errorf("exit code %d for shards of different loads: %q", code, errs)
	}
	drivenByTheRecordedLoad(t, whole)
}

// drivenByTheRecordedLoad checks the requests of each half second.
func drivenByTheRecordedLoad(t *testing.T, dir string) {
	_, cells, err := compare.ReadRaw(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, cell := range cells {
		if len(cell.Windows) != 20 {
			t.Fatalf("%d windows of %s, want the recording's 20", len(cell.Windows), cell.Contender)
		}
		for half, want := range []float64{1000, 3000, 1000, 3000} {
			due := 0.0
			for _, w := range cell.Windows[5*half : 5*half+5] {
				due += float64(w.Due)
			}
			// Recorded arrivals are random, and so are simulated ones: five
			// standard deviations of their difference.
			if math.Abs(due-want) > 5*math.Sqrt(2*want) {
				t.Errorf("%s was offered %v requests in half second %d, recorded were about %v", cell.Contender, due, half, want)
			}
		}
	}
}

func TestARegimeIsThatOfTheRecordedApplications(t *testing.T) {
	dir := t.TempDir()
	prefers := twoQueues("prefers")
	prefers.prefer = true
	out := done(t, overTraces(recordSimulated(t, dir, prefers), "--seeds", "1", "--queues", "1", "-o", filepath.Join(dir, "out"))...)
	if !strings.Contains(out, "suspend regime") || !strings.Contains(out, "1 queue,") {
		t.Errorf("no regime of suspension on the busiest queue in\n%s", out)
	}
}

func TestAMachineIsFittedToTheRecordings(t *testing.T) {
	dir := t.TempDir()
	steady := twoQueues("tuesday.trace.zst")
	steady.rates = []float64{8000}
	path := recordSimulated(t, dir, steady)
	to := filepath.Join(dir, "out")
	args := []string{"compare", "--traces", path, "--fit", "--seeds", "1", "--windows", "4", "--interval", "100ms", "--max-flush", "20us", "-o", to}
	out := done(t, args...)
	if !strings.Contains(out, "preset generic fitted to what was recorded") {
		t.Errorf("it does not say what was fitted:\n%s", out)
	}
	again := filepath.Join(dir, "again")
	done(t, append(args, "-o", again, "-j", "1")...)
	if read(t, to, "manifest.json") != read(t, again, "manifest.json") {
		t.Error("a fit on one goroutine is not that on several")
	}
	manifest, err := compare.ReadManifest(to)
	if err != nil {
		t.Fatal(err)
	}
	generic, err := sim.LoadPreset("generic")
	if err != nil {
		t.Fatal(err)
	}
	fitted := manifest.Plan.Fitted
	if fitted == nil || fitted.Host.Queues != 2 || reflect.DeepEqual(fitted.Cost, generic.Cost) {
		t.Errorf("the machine of the manifest is not one of two queues with costs of its own: %+v", fitted)
	}
	if n := manifest.Plan.Traces[0].Duration; n != 400*time.Millisecond || !strings.Contains(manifest.Plan.Traces[0].About, "from its beginning") {
		t.Errorf("%v (%s), want four windows", n, manifest.Plan.Traces[0].About)
	}
}

func TestAFitHasRecordedRequestsComeInBursts(t *testing.T) {
	to := filepath.Join(t.TempDir(), "out")
	done(t, "compare", "--traces", burstsRecording, "--fit", "--seeds", "1", "--windows", "4", "--interval", "500ms",
		"--policies", "aimd", "--references", "fixed", "--max-flush", "20us", "-o", to)
	manifest, err := compare.ReadManifest(to)
	if err != nil {
		t.Fatal(err)
	}
	if about := manifest.Plan.Traces[0].About; !strings.Contains(about, "in bursts of") {
		t.Errorf("the trace is %q, want its bursts named", about)
	}
}

func TestPartsAndPatternsOfTraces(t *testing.T) {
	parts, _ := recordParts(t, newTroubled(2, 2, 100), "random:seed=5", true, trace.Rotation{Age: 4 * time.Second})
	if len(parts) < 2 {
		t.Fatal("one part only")
	}
	pattern := filepath.Join(filepath.Dir(parts[0]), "*")
	dir := t.TempDir()
	c := compareGridCmd{compareTraceFlags: compareTraceFlags{Traces: []string{pattern}}}
	traces, err := c.readTraces(t.Context(), streams{err: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	if len(traces.loads) != 1 || traces.loads[0].name != "run" {
		t.Fatalf("%d recordings, want one called run: %+v", len(traces.loads), traces.loads)
	}
	if n, _ := traces.loads[0].Windows(); n != 100 {
		t.Errorf("%d windows, want those of all parts", n)
	}
	// A part that is missing in the middle is not a recording of its own.
	code, _, errs := call(t, overTraces(parts[0]+","+parts[2], "-o", dir)...)
	if code != exitUsage || !strings.Contains(errs, "none left out") {
		t.Errorf("exit code %d: %q", code, errs)
	}
}

func TestTracesUnderOtherConditionsAreRefused(t *testing.T) {
	dir := t.TempDir()
	a := recordSimulated(t, dir, twoQueues("a"))
	for name, tc := range map[string]struct {
		change func(*simulatedTrace)
		says   string
	}{
		"governor":              {func(o *simulatedTrace) { o.governor = "powersave" }, "frequency governor of CPU 0: performance and powersave"},
		"governor from then on": {func(o *simulatedTrace) { o.later = "powersave" }, "frequency governor of CPU 0: performance and powersave"},
		"idle states":           {func(o *simulatedTrace) { o.disabled = true }, "C6 (133µs) and C6 (133µs, disabled)"},
		"interrupt moderation":  {func(o *simulatedTrace) { o.usecs = 50 }, "interrupt moderation of eth7"},
	} {
		t.Run(name, func(t *testing.T) {
			other := twoQueues("b")
			tc.change(&other)
			b := recordSimulated(t, t.TempDir(), other)
			args := overTraces(a+","+b, "--seeds", "1", "--windows", "2", "-o", filepath.Join(t.TempDir(), "out"))
			code, out, errs := call(t, args...)
			if code != exitUsage || out != "" || strings.Count(errs, "\n") != 1 {
				t.Fatalf("exit code %d, printed %q and %q", code, out, errs)
			}
			for _, want := range []string{tc.says, "--force-conditions", a, b} {
				if !strings.Contains(errs, want) {
					t.Errorf("no %q in %q", want, errs)
				}
			}
			if name != "governor" {
				return
			}
			if out := done(t, append(args, "--force-conditions")...); !strings.Contains(out, "\na\n") || !strings.Contains(out, "\nb\n") {
				t.Errorf("not both in\n%s", out)
			}
		})
	}
}

func TestCompareRefusesTracesThatTellNoLoad(t *testing.T) {
	dir := t.TempDir()
	sound := recordSimulated(t, dir, twoQueues("sound.trace.zst"))
	nothing := filepath.Join(dir, "nothing")
	writeText(t, nothing, "")
	empty := recordSimulated(t, dir, simulatedTrace{name: "empty", rates: []float64{1}})
	unseen := twoQueues("unseen")
	unseen.unseen = true
	prefers := twoQueues("prefers")
	prefers.prefer = true
	single := twoQueues("single")
	single.queues = 1
	sub := filepath.Join(dir, "sub")
	if err := os.Mkdir(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	damaged := recordSimulated(t, dir, twoQueues("damaged"))
	data, err := os.ReadFile(damaged)
	if err != nil {
		t.Fatal(err)
	}
	// Not the header, without which nothing can be salvaged.
	data[len(data)*3/4] ^= 0x55
	writeText(t, damaged, string(data))
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"no such file", []string{"--traces", dir + "/none"}, []string{dir + "/none", "no such file"}},
		{"one missing of two", []string{"--traces", sound + "," + dir + "/none"}, []string{dir + "/none"}},
		{"a pattern without a match", []string{"--traces", dir + "/x*.zst"}, []string{dir + "/x*.zst"}},
		{"an empty file", []string{"--traces", nothing}, []string{nothing, "empty"}},
		{"a trace without samples", []string{"--traces", empty}, []string{empty, "no samples"}},
		{"a trace without delays", []string{"--traces", recordSimulated(t, dir, unseen)}, []string{"unseen", "no delay"}},
		{"a damaged trace", []string{"--traces", damaged}, []string{damaged, "damage", "--salvage"}},
		{"the same name twice", []string{"--traces", sound + "," + recordSimulated(t, sub, twoQueues("sound"))}, []string{"sound", "twice"}},
		{"applications of two kinds", []string{"--traces", sound + "," + recordSimulated(t, dir, prefers)}, []string{"prefer", "--regime"}},
		{"another number of queues", []string{"--traces", sound + "," + recordSimulated(t, dir, single)}, []string{"has 2", "has 1", "--queues"}},
		{"more queues than recorded", []string{"--traces", sound, "--queues", "3"}, []string{"--queues 3", "has 2"}},
		{"fewer than none", []string{"--traces", sound, "--queues=-1"}, []string{"--queues -1"}},
		{"shorter than a window", []string{"--traces", sound, "--interval", "5s"}, []string{"sound", "2s"}},
		{"skew of what has its own", []string{"--traces", sound, "--plant", "skew=0.5"}, []string{"skew=0.5"}},
		{"a fit to nothing", []string{"--fit"}, []string{"--traces"}},
		{"a fit to too little", []string{"--traces", recordSimulated(t, dir, simulatedTrace{name: "little", windows: 4, rates: []float64{100}}), "--fit"}, []string{"500 requests"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := call(t, append([]string{"compare", "-o", filepath.Join(dir, "out")}, tc.args...)...)
			if code != exitUsage || out != "" {
				t.Errorf("exit code %d, want %d; it printed %q", code, exitUsage, out)
			}
			for _, part := range tc.says {
				if !strings.Contains(errs, part) {
					t.Errorf("%q does not mention %q", errs, part)
				}
			}
			if n := strings.Count(errs, "\n"); n != 1 && tc.name != "a fit to too little" {
				t.Errorf("%d lines, want 1: %q", n, errs)
			}
			if _, err := os.Stat(filepath.Join(dir, "out")); err == nil {
				t.Error("it made the directory of a report")
			}
		})
	}
}

func TestLongTracesAreComparedInStretchesSpreadEvenly(t *testing.T) {
	path := recordSimulated(t, t.TempDir(), simulatedTrace{name: "day", queues: 1, windows: 200, rates: []float64{1000, 2000, 4000, 8000}})
	c := compareGridCmd{compareTraceFlags: compareTraceFlags{Traces: []string{path}}}
	traces, err := c.readTraces(t.Context(), streams{err: os.Stderr})
	if err != nil {
		t.Fatal(err)
	}
	r := traces.loads[0].Recording
	all := r.Load(0, 200).PerSecond[0]
	got := traces.scenarios(1, 120, 100*time.Millisecond, counterfactual.ToldBursts{})[0]
	if got.Duration != 12*time.Second || !strings.Contains(got.About, "12s of 20s in 2 stretches") {
		t.Errorf("%v, %q", got.Duration, got.About)
	}
	want := append(append([]float64{}, all[:60]...), all[140:]...)
	for i, rate := range got.Load.PerSecond[0] {
		if rate != want[i] {
			t.Fatalf("window %d has %v requests per second, want %v", i, rate, want[i])
		}
	}
	// Windows of a comparison that are longer than those recorded, or shorter,
	// come to the same time.
	for _, interval := range []time.Duration{40 * time.Millisecond, 250 * time.Millisecond} {
		windows := int(4 * time.Second / interval)
		if got := traces.scenarios(1, windows, interval, counterfactual.ToldBursts{})[0]; got.Duration != 4*time.Second {
			t.Errorf("%v in windows of %v, want 4s", got.Duration, interval)
		}
	}
	if n := traces.windows(250 * time.Millisecond); n != 80 {
		t.Errorf("%d windows of 250ms in all of it, want 80", n)
	}
}
