package compare_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"autotune/experiments/compare"
	"autotune/model"
	"autotune/model/policy"
)

// plan is a comparison of a few seconds.
func plan(policies ...string) compare.Plan {
	return compare.Plan{
		Program: "test", Policies: policies, Scenarios: []string{"constant", "step"}, Seeds: 5, FirstSeed: 1,
		SLO: 250 * time.Microsecond, Quantile: 0.99, Interval: 100 * time.Millisecond, Windows: 30,
		Preset: "epyc7662-cx5", Regime: compare.RegimeSuspend, Latency: compare.LatencyClient, Queues: 1,
		Guarded: true, LoadScale: 1, MaxFlush: 200 * time.Microsecond,
	}
}

func run(t *testing.T, p compare.Plan, o compare.RunOptions) (compare.Plan, []compare.Cell) {
	t.Helper()
	cells, err := compare.Run(t.Context(), &p, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, cells
}

func report(t *testing.T, p compare.Plan, cells []compare.Cell) *compare.Report {
	t.Helper()
	r, err := compare.NewReport(p, cells)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func summary(t *testing.T, r *compare.Report, scenario, contender string) compare.Summary {
	t.Helper()
	i := slices.IndexFunc(r.Summaries, func(s compare.Summary) bool { return s.Scenario == scenario && s.Contender == contender })
	if i < 0 {
		t.Fatalf("no summary of %s in %s", contender, scenario)
	}
	return r.Summaries[i]
}

// TestTheJudge holds the comparison to what must be true of any honest one: a
// policy that does nothing, and one that draws at random, beat nobody who meets
// the target; who meets it at less CPU wins; the references are ordered.
func TestTheJudge(t *testing.T) {
	const good, dear = "static:defer=21,flush=90us,suspend=20ms", "static:defer=100,flush=10us,suspend=20ms"
	p := plan("static:defer=100,flush=20us", "random", good, dear)
	p.Scenarios = []string{"constant"}
	p, cells := run(t, p, compare.RunOptions{})
	r := report(t, p, cells)
	for _, loser := range []string{"base", "random"} {
		for _, other := range []string{"suspend20", "best-static", "oracle", "oracle-transient", good, dear} {
			c, ok := r.Against("constant", loser, other)
			if !ok || c.Outcome != compare.Loss || c.By != "violations" {
				t.Errorf("%s against %s: %+v", loser, other, c)
			}
		}
	}
	if c, ok := r.Against("constant", good, dear); !ok || c.Outcome != compare.Win || c.By != "cost" || c.CostRatio.High >= 1 {
		t.Errorf("who meets the target at less CPU does not win by cost: %+v", c)
	}
	best, oracle, base := summary(t, r, "constant", "best-static"), summary(t, r, "constant", "oracle"), summary(t, r, "constant", "base")
	// Best-static is what did hold the target; the oracle chooses what is
	// predicted to do so in 99% of windows, of which there are too few here to
	// hold it to the estimate.
	if best.ViolatingWindows.Estimate > 0.01 || oracle.ViolatingWindows.Low > 0.01 {
		t.Errorf("violating windows: best-static %v, oracle %v, want at most 1%%", best.ViolatingWindows, oracle.ViolatingWindows)
	}
	// The published runs have base above the target at 600K, and suspension
	// with a long timeout cheaper.
	if base.ViolatingWindows.Estimate < 0.9 || !(oracle.CyclesPerRequest.High < base.CyclesPerRequest.Low) {
		t.Errorf("base violates in %v and costs %v, the oracle costs %v", base.ViolatingWindows, base.CyclesPerRequest, oracle.CyclesPerRequest)
	}
	if s := oracle.SavingOverBase; s.Estimate != 1 {
		t.Errorf("the oracle's share of its own saving is %v", s)
	}
	if s := summary(t, r, "constant", "random"); s.Changes.Estimate < 1 {
		t.Errorf("random changed %v times", s.Changes)
	}
}

// TestEqualPlansGiveEqualBytes compares one core with four, the whole with
// merged shards, and a table of steady states that is made with one that is
// read.
func TestEqualPlansGiveEqualBytes(t *testing.T) {
	p := plan("aimd", "random:max=150us")
	p.Seeds, p.Windows, p.Interval = 2, 12, 50*time.Millisecond
	steady := filepath.Join(t.TempDir(), compare.TableFile)
	write := func(shard, shards, workers int) string {
		dir := t.TempDir()
		q, cells := run(t, p, compare.RunOptions{Shard: shard, Shards: shards, Workers: workers, Table: steady})
		if err := compare.WriteRaw(dir, q, shard, shards, cells); err != nil {
			t.Fatal(err)
		}
		if shards == 0 {
			if err := report(t, q, cells).WriteFiles(dir); err != nil {
				t.Fatal(err)
			}
		}
		return dir
	}
	whole := write(0, 0, 4)
	same(t, whole, write(0, 0, 1))
	var shards []string
	for i := range 3 {
		shards = append(shards, write(3-i, 3, 2))
	}
	q, cells, err := compare.Merge(shards)
	if err != nil {
		t.Fatal(err)
	}
	merged := t.TempDir()
	if err := compare.WriteRaw(merged, q, 0, 0, cells); err != nil {
		t.Fatal(err)
	}
	if err := report(t, q, cells).WriteFiles(merged); err != nil {
		t.Fatal(err)
	}
	same(t, whole, merged)

	refusals(t, shards, p)
}

// same compares two directories byte by byte.
func same(t *testing.T, a, b string) {
	t.Helper()
	names := []string{
		compare.ManifestFile, compare.RowsFile, compare.CellsCSVFile, compare.CellsFile, compare.SummaryCSVFile,
		compare.SummaryFile, compare.TextFile, compare.HTMLFile,
	}
	for _, name := range names {
		x, err := os.ReadFile(filepath.Join(a, name))
		if err != nil {
			t.Fatal(err)
		}
		y, err := os.ReadFile(filepath.Join(b, name))
		if err != nil {
			t.Fatal(err)
		}
		if len(x) == 0 || !bytes.Equal(x, y) {
			t.Errorf("%s: %d and %d bytes, not the same", name, len(x), len(y))
		}
	}
}

// refusals tries to merge what does not make a whole.
func refusals(t *testing.T, shards []string, p compare.Plan) {
	t.Helper()
	rewrite := func(change func(*compare.Manifest)) string {
		dir := t.TempDir()
		m, cells, err := compare.ReadRaw(shards[0])
		if err != nil {
			t.Fatal(err)
		}
		change(&m)
		if err := compare.WriteRaw(dir, m.Plan, m.Shard, m.Shards, cells); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	damaged := rewrite(func(*compare.Manifest) {})
	if err := os.WriteFile(filepath.Join(damaged, compare.RowsFile), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	other := rewrite(func(m *compare.Manifest) { m.Plan.SLO = time.Millisecond })
	for _, tc := range []struct {
		name string
		dirs []string
		says []string
	}{
		{"a shard is missing", shards[:2], []string{"missing", "1/3"}},
		{"a shard is there twice", []string{shards[0], shards[1], shards[1]}, []string{"both shard 2 of 3", shards[1]}},
		{"a shard is of another plan", []string{shards[2], shards[1], other}, []string{other, "slo_ns", "1000000", "250000"}},
		{"a shard is of another division", []string{shards[2], shards[1], rewrite(func(m *compare.Manifest) { m.Shards = 4 })}, []string{"of 4", "of 3"}},
		{"a directory has no manifest", []string{shards[0], t.TempDir()}, []string{"did not finish"}},
		{"a file is no directory", []string{filepath.Join(shards[0], compare.ManifestFile)}, []string{"not a directory"}},
		{"rows are damaged", []string{damaged, shards[1], shards[2]}, []string{damaged, "damaged"}},
		{"a shard has the cells of another", []string{rewrite(func(m *compare.Manifest) { m.Shard = 1 }), shards[1], rewrite(func(m *compare.Manifest) { m.Shard = 3 })}, []string{"cell"}},
		{"a whole is no shard", []string{rewrite(func(m *compare.Manifest) { m.Shard, m.Shards = 0, 0 })}, []string{"whole"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, _, err := compare.Merge(tc.dirs)
			if err == nil {
				t.Fatal("it was merged")
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not mention %q", err, part)
				}
			}
		})
	}
}

func TestBadPlansAreRefused(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(*compare.Plan)
		says   string
	}{
		{"no scenario", func(p *compare.Plan) { p.Scenarios = nil }, "no scenario"},
		{"unknown scenario", func(p *compare.Plan) { p.Scenarios = []string{"rush"} }, "rush"},
		{"scenario twice", func(p *compare.Plan) { p.Scenarios = []string{"step", "step"} }, "twice"},
		{"unknown policy", func(p *compare.Plan) { p.Policies = []string{"magic"} }, "magic"},
		{"policy twice", func(p *compare.Plan) { p.Policies = []string{"aimd", "aimd"} }, "twice"},
		{"no seeds", func(p *compare.Plan) { p.Seeds = 0 }, "seeds"},
		{"SLO of zero", func(p *compare.Plan) { p.SLO = 0 }, "SLO"},
		{"quantile of one", func(p *compare.Plan) { p.Quantile = 1 }, "quantile"},
		{"window too short", func(p *compare.Plan) { p.Interval = time.Millisecond }, "10ms"},
		{"all windows skipped", func(p *compare.Plan) { p.Skip = p.Windows }, "skipped"},
		{"unknown regime", func(p *compare.Plan) { p.Regime = "both" }, "both"},
		{"unknown latency", func(p *compare.Plan) { p.Latency = "mean" }, "mean"},
		{"more queues than the machine has", func(p *compare.Plan) { p.Queues = 9 }, "8"},
		{"unknown preset", func(p *compare.Plan) { p.Preset = "cray" }, "cray"},
		{"no load", func(p *compare.Plan) { p.LoadScale = 0 }, "scaled"},
		{"one queue with a part of its own load", func(p *compare.Plan) { p.Plant.Skew = 0.5 }, "several"},
		{"plant out of range", func(p *compare.Plan) { p.Plant.Costs = -1 }, "costs"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := plan("aimd")
			tc.change(&p)
			if err := p.Prepare(); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("error %v, want one that mentions %s", err, tc.says)
			}
		})
	}
}

func TestATableThatCannotBeKeptIsRefusedBeforeItIsMade(t *testing.T) {
	p := plan("aimd")
	said := false
	_, err := compare.Run(t.Context(), &p, compare.RunOptions{
		Table: filepath.Join(t.TempDir(), "missing", "steady.json"), Progress: func(string) { said = true },
	})
	if !errors.Is(err, compare.ErrPlan) || !strings.Contains(err.Error(), "missing") || said {
		t.Errorf("error %v, simulated %v", err, said)
	}
}

func TestSpecsAreSplitAtTheCommasBetweenThem(t *testing.T) {
	for _, tc := range []struct {
		list string
		want []string
	}{
		{"base", []string{"base"}},
		{"aimd,base", []string{"aimd", "base"}},
		{"aimd:start=20us,step=4us,base", []string{"aimd:start=20us,step=4us", "base"}},
		{"static:defer=100,flush=50us,suspend=20ms,random:seed=3", []string{"static:defer=100,flush=50us,suspend=20ms", "random:seed=3"}},
		{"random:max=1ms,aimd:min=0us", []string{"random:max=1ms", "aimd:min=0us"}},
	} {
		if diff := cmp.Diff(tc.want, compare.SplitSpecs(tc.list)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.list, diff)
		}
	}
	// The rule rests on no policy's name having the form key=value.
	for _, k := range policy.Kinds() {
		if strings.ContainsAny(k.Name, "=,:") {
			t.Errorf("policy %q cannot be told from a parameter", k.Name)
		}
	}
}

func TestShardsDealEveryCellOnce(t *testing.T) {
	for _, n := range []int{1, 7, 840} {
		for _, shards := range []int{1, 2, 7, 20} {
			var all []int
			for i := range shards {
				part := compare.Deal(n, i+1, shards)
				if least, most := n/shards, (n+shards-1)/shards; len(part) < least || len(part) > most {
					t.Errorf("shard %d of %d has %d of %d cells", i+1, shards, len(part), n)
				}
				all = append(all, part...)
			}
			slices.Sort(all)
			if len(all) != n || len(slices.Compact(all)) != n {
				t.Errorf("%d shards of %d cells have %d", shards, n, len(all))
			}
		}
	}
}

func TestLateRequestsAreCountedWithinABucket(t *testing.T) {
	var h model.Histogram
	limit := 250 * time.Microsecond
	low, high := model.HistogramBounds(model.HistogramBucket(limit))
	h.Add(limit, 1000)
	h.Add(time.Millisecond, 10)
	h.Add(time.Microsecond, 500)
	want := 10 + 1000*float64(high-limit)/float64(high-low)
	if got := compare.Late(&h, limit); got < want-0.01 || got > want+0.01 {
		t.Errorf("%v late requests, want %v", got, want)
	}
}

func TestSeedsReachPoliciesThatDraw(t *testing.T) {
	for _, tc := range []struct{ spec, want string }{
		{"random", "random:seed=7"},
		{"random:max=1ms", "random:max=1ms,seed=7"},
		{"random:seed=2", "random:seed=2"},
		{"random:max=1ms,seed=2", "random:max=1ms,seed=2"},
		{"aimd", "aimd"},
	} {
		if got := compare.Seeded(tc.spec, 7); got != tc.want {
			t.Errorf("%s became %s, want %s", tc.spec, got, tc.want)
		}
	}
}
