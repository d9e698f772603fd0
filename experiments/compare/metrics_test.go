package compare_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"autotune/experiments/compare"
	"autotune/experiments/stats"
	"autotune/model/sim"
)

// written is a cell whose windows are given: load, quantile in microseconds and
// kilocycles per request of each.
func written(contender string, windows ...[3]float64) compare.Cell {
	c := compare.Cell{Scenario: "written", Seed: 1, Contender: contender}
	for i, w := range windows {
		q := int64(w[1] * 1e3)
		c.Windows = append(c.Windows, compare.Window{
			Index: i, Due: uint64(w[0]), Served: uint64(w[0]), Quantile: &q, Violating: w[1] > 250,
			Cycles: w[2] * 1e3 * w[0], Packets: uint64(2 * w[0]),
		})
		c.Delay.Add(time.Duration(q), uint64(w[0]))
	}
	return c
}

func repeat(w [3]float64, n int) [][3]float64 {
	out := make([][3]float64, n)
	for i := range out {
		out[i] = w
	}
	return out
}

func TestMetricsByHand(t *testing.T) {
	p := plan("x")
	p.Scenarios, p.Seeds, p.Interval = []string{"written"}, 1, time.Second
	// Ten windows at each of two loads. The oracle costs 20 and then 10; x is
	// as good at first, after the change violates in two windows, is dear in
	// one more, and settles.
	high := [3]float64{2000, 200, 10}
	oracle := append(repeat([3]float64{1000, 200, 20}, 10), repeat(high, 10)...)
	x := append(repeat([3]float64{1000, 200, 20}, 10), [3]float64{2000, 350, 10}, [3]float64{2000, 300, 10}, [3]float64{2000, 200, 13})
	x = append(x, repeat(high, 7)...)
	cells := []compare.Cell{
		written("base", repeat([3]float64{1500, 600, 30}, 20)...),
		written("suspend20", repeat([3]float64{1500, 150, 25}, 20)...),
		written("best-static", repeat([3]float64{1500, 200, 20}, 20)...),
		written("oracle", oracle...),
		written("oracle-transient", oracle...),
		written("x", x...),
	}
	cells[5].Windows[3].Changes, cells[5].Windows[3].Steps = 1, 4
	cells[5].Windows[10].Changes, cells[5].Windows[10].Steps = 1, 2
	cells[5].Windows[11].Refused = 2
	cells[5].Windows[12].Late = 30
	r := report(t, p, cells)
	m := r.Metrics[5]
	// 1000 x 10 x 20 + 2000 x (10 x 9 + 13) = 406e3 kilocycles of 30,000.
	cost := 406e3 / 30e3 * 1e3
	oracleCost := 400e3 / 30e3 * 1e3
	want := compare.Metrics{
		Scenario: "written", Seed: 1, Contender: "x", Windows: 20, Requests: 30000,
		ViolatingWindows: 0.1, ViolatingRequests: 30.0 / 30000, ExcessArea: 150, WorstWindow: 350,
		CyclesPerRequest: cost, CyclesPerPacket: cost / 2,
		VsBestStatic: cost / 20e3, VsOracle: cost / oracleCost, VsBase: cost / 30e3,
		SavingOverBase: (30e3 - cost) / (30e3 - oracleCost), SavingOverFixed: (25e3 - cost) / (25e3 - oracleCost),
		Regret: 3000.0 * 2000 / 30000, LoadChanges: 1, Settling: 3,
		Changes: 2, ChangeSteps: 3, Refused: 2, RestChanges: math.NaN(),
	}
	ignore := cmpopts.IgnoreFields(compare.Metrics{}, "P50", "P99", "Max")
	if diff := cmp.Diff(want, m, ignore, cmpopts.IgnoreUnexported(compare.Metrics{}), cmpopts.EquateApprox(1e-9, 0), cmpopts.EquateNaNs()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// Delays are known to a bucket, 12.5% wide.
	if m.P50 < 180 || m.P50 > 220 || m.P99 < 300 || m.P99 > 400 || m.Max < 350 || m.Max > 400 {
		t.Errorf("p50 %v, p99 %v, max %v", m.P50, m.P99, m.Max)
	}
	if o := r.Metrics[3]; o.Settling != 0 || o.Regret != 0 || o.SavingOverBase != 1 {
		t.Errorf("the oracle settles in %v windows, regrets %v and saves %v of its saving", o.Settling, o.Regret, o.SavingOverBase)
	}
}

func TestSkippedWindowsAreNotJudged(t *testing.T) {
	p := plan("x")
	p.Scenarios, p.Seeds, p.Skip = []string{"written"}, 1, 2
	windows := append(repeat([3]float64{1000, 900, 90}, 2), repeat([3]float64{1000, 200, 20}, 8)...)
	var cells []compare.Cell
	for _, name := range p.Contenders() {
		cells = append(cells, written(name, windows...))
	}
	m := report(t, p, cells).Metrics[5]
	if m.Windows != 8 || m.ViolatingWindows != 0 || m.CyclesPerRequest != 20e3 || m.WorstWindow != 200 {
		t.Errorf("skipped windows count: %+v", m)
	}
}

func TestUnknownNumbersStayUnknown(t *testing.T) {
	p := plan("x")
	p.Scenarios, p.Seeds = []string{"written"}, 1
	var cells []compare.Cell
	for _, name := range p.Contenders() {
		c := written(name, repeat([3]float64{0, 0, 0}, 4)...)
		for i := range c.Windows {
			c.Windows[i].Quantile = nil
		}
		cells = append(cells, c)
	}
	r := report(t, p, cells)
	var out strings.Builder
	if err := r.WriteCells(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"cycles_per_request":null`, `"cost_vs_oracle":null`, `"settling_windows":null`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %s in %s", want, out.String())
		}
	}
	for _, write := range []func(*strings.Builder) error{
		func(b *strings.Builder) error { return r.WriteHTML(b) },
		func(b *strings.Builder) error { return r.WriteText(b) },
		func(b *strings.Builder) error { return r.WriteSummary(b) },
		func(b *strings.Builder) error { return r.WriteSummaryCSV(b) },
	} {
		var b strings.Builder
		if err := write(&b); err != nil {
			t.Errorf("a report without numbers cannot be written: %v", err)
		}
		if strings.Contains(b.String(), "NaN") {
			t.Errorf("NaN in %s", b.String())
		}
	}
}

func TestLoadChangesAreThoseThatStay(t *testing.T) {
	for _, tc := range []struct {
		name string
		due  []uint64
		want []int
	}{
		{"a step", []uint64{100, 100, 100, 200, 200, 200, 205, 195, 200, 200}, []int{3}},
		{"a drift", []uint64{100, 110, 121, 133, 146, 161, 177, 195, 214, 235}, nil},
		{"a blip", []uint64{100, 100, 200, 100, 100, 100, 100, 100, 100, 100}, []int{3}},
		{"a step too near the end", []uint64{100, 100, 100, 100, 100, 100, 200, 200, 200}, nil},
		{"within counting noise", []uint64{100, 110, 95, 105, 100, 110, 95, 105, 100}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			windows := make([]compare.Window, len(tc.due))
			for i, n := range tc.due {
				windows[i].Due = n
			}
			if diff := cmp.Diff(tc.want, compare.LoadChanges(windows, 0)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRestIsAnEvenLoadOfSixtyWindows(t *testing.T) {
	windows := make([]compare.Window, 200)
	for i := range windows {
		windows[i].Due = uint64(1e6 + 2e4*float64(i%2))
		if i >= 100 {
			windows[i].Due = 2e6
		}
	}
	first, count := -1, 0
	for i, at := range compare.AtRest(windows) {
		if at && first < 0 {
			first = i
		}
		if at {
			count++
		}
	}
	if first != 60 || count != 40+40 {
		t.Errorf("the first window at rest is %d, and %d are; want 60, and 40 of each load", first, count)
	}
}

func TestAWinNeedsAnIntervalThatExcludesZero(t *testing.T) {
	none := stats.Interval{}
	equal := stats.Interval{Estimate: 1, Low: 0.99, High: 1.01}
	cheaper := stats.Interval{Estimate: 0.9, Low: 0.85, High: 0.95}
	for _, tc := range []struct {
		name       string
		more, cost stats.Interval
		seeds      int
		want       compare.Outcome
		by         string
	}{
		{"equal violations, cheaper", none, cheaper, 5, compare.Win, "cost"},
		{"equal violations, dearer", none, stats.Interval{Estimate: 1.1, Low: 1.05, High: 1.15}, 5, compare.Loss, "cost"},
		{"equal in both", none, equal, 5, compare.Tie, ""},
		{"touching zero is no win", none, stats.Interval{Estimate: 0.9, Low: 0.8, High: 1}, 5, compare.Tie, ""},
		{"cheaper by violating", stats.Interval{Estimate: 0.2, Low: 0.1, High: 0.3}, cheaper, 5, compare.Loss, "violations"},
		{"fewer violations at a price", stats.Interval{Estimate: -0.2, Low: -0.3, High: -0.1}, equal, 5, compare.Win, "violations"},
		{"violations undecided, cheaper", stats.Interval{Estimate: 0.1, Low: -0.1, High: 0.3}, cheaper, 5, compare.Win, "cost"},
		{"too few seeds", none, cheaper, 4, compare.Undecided, ""},
		{"unknown cost", none, stats.Interval{Estimate: math.NaN(), Low: math.NaN(), High: math.NaN()}, 5, compare.Tie, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got, by := compare.Decide(tc.more, tc.cost, tc.seeds); got != tc.want || by != tc.by {
				t.Errorf("%s by %q, want %s by %q", got, by, tc.want, tc.by)
			}
		})
	}
}

func TestOfferedLoadIsTheMeanOfEachWindow(t *testing.T) {
	load := sim.Steps{PerSecond: []float64{100, 300}, Each: 1500 * time.Millisecond}
	got := compare.Offered(load, 2, 4, time.Second)
	if diff := cmp.Diff([]float64{100, 200, 300, 100}, got, cmpopts.EquateApprox(1e-9, 0)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestPlantChanges(t *testing.T) {
	p, err := compare.ParsePlant([]string{"costs=2", "rtt=20us", "noise=4", "skew=0.5", "sample-every=16"})
	if err != nil {
		t.Fatal(err)
	}
	want := compare.Plant{Costs: 2, RoundTrip: 20 * time.Microsecond, Noise: 4, Skew: 0.5, SampleEvery: 16}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	again, err := compare.ParsePlant(strings.Fields(p.String()))
	if err != nil || again != p {
		t.Errorf("%q is read as %+v, error %v", p, again, err)
	}
	for _, bad := range []string{"costs", "costs=0", "costs=x", "colour=2", "noise=0.5", "skew=2", "sample-every=0.5", "rtt=20", "rtt=-1us", "costs=NaN"} {
		if _, err := compare.ParsePlant([]string{bad}); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	if _, err := compare.ParsePlant([]string{"costs=2", "costs=3"}); err == nil {
		t.Error("costs was taken twice")
	}
}

// TestThePlantIsWhatIsSimulated changes the machine under one fixed setting.
func TestThePlantIsWhatIsSimulated(t *testing.T) {
	simulate := func(change func(*compare.Plan)) compare.Metrics {
		p := plan()
		p.Scenarios, p.Seeds, p.Windows, p.LoadScale = []string{"constant"}, 1, 10, 0.4
		change(&p)
		p, cells := run(t, p, compare.RunOptions{})
		return report(t, p, cells).Metrics[1]
	}
	plain := simulate(func(*compare.Plan) {})
	if m := simulate(func(p *compare.Plan) { p.Plant.Costs = 2 }); m.CyclesPerRequest < 1.5*plain.CyclesPerRequest {
		t.Errorf("at twice the costs a request takes %v cycles, at the preset's %v", m.CyclesPerRequest, plain.CyclesPerRequest)
	}
	if m := simulate(func(p *compare.Plan) { p.Plant.RoundTrip = 20 * time.Microsecond }); math.Abs(m.P50-plain.P50-20) > 5 {
		t.Errorf("20 us of round trip move the median from %v to %v us", plain.P50, m.P50)
	}
	if m := simulate(func(p *compare.Plan) { p.Latency = compare.LatencyServer }); m.P50 > plain.P50-20 {
		t.Errorf("the server's median is %v us, the client's %v", m.P50, plain.P50)
	}
	if m := simulate(func(p *compare.Plan) { p.Regime = compare.RegimeDeferral }); m.Contender != "defer20" {
		t.Errorf("the fixed reference of the deferral regime is %s", m.Contender)
	}
}

// TestPoliciesSeeThroughTheLens checks that thinned delays hold a policy back
// and change nothing of what is measured.
func TestPoliciesSeeThroughTheLens(t *testing.T) {
	simulate := func(plant compare.Plant, guarded bool) compare.Cell {
		p := plan("random:seed=3")
		p.Scenarios, p.Seeds, p.Windows, p.Plant, p.Guarded = []string{"constant"}, 1, 20, plant, guarded
		_, cells := run(t, p, compare.RunOptions{})
		return cells[5]
	}
	changes := func(c compare.Cell) (n int) {
		for _, w := range c.Windows {
			n += w.Changes
		}
		return n
	}
	all := changes(simulate(compare.Plant{}, false))
	some := simulate(compare.Plant{SampleEvery: 16}, false)
	if n := changes(some); n == 0 || n > all/3 {
		t.Errorf("%d changes when a sixteenth of the requests is followed, %d with all", n, all)
	}
	if held := changes(simulate(compare.Plant{}, true)); held >= all {
		t.Errorf("%d changes behind the guards, %d without", held, all)
	}
	var served, delays uint64
	for _, w := range some.Windows {
		served += w.Served
	}
	if delays = some.Delay.Count(); delays < served*99/100 {
		t.Errorf("%d delays were judged of %d requests", delays, served)
	}
}
