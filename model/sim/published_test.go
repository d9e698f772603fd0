package sim

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// table simulates the whole published table once for all tests that read it.
var simulatedTable = sync.OnceValues(func() (map[string]*Row, error) {
	rows, err := Table(context.Background(), TableOptions{
		Runs: 3, Seed: 20,
	})
	byCell := map[string]*Row{}
	for i := range rows {
		byCell[rows[i].Case+" at "+rows[i].Load] = &rows[i]
	}
	return byCell, err
})

func simulated(tb testing.TB) func(name, load string) *Row {
	tb.Helper()
	rows, err := simulatedTable()
	if err != nil {
		tb.Fatal(err)
	}
	return func(name, load string) *Row {
		tb.Helper()
		row := rows[name+" at "+load]
		if row == nil {
			tb.Fatalf("no cell %s at %s", name, load)
		}
		return row
	}
}

var upTo800K = []string{"200K", "400K", "600K", "800K"}

func within(a, b, tolerance float64) bool { return a <= b*(1+tolerance) && a >= b*(1-tolerance) }

func TestSuspensionWithoutDeferralBehavesAsBase(t *testing.T) {
	cell := simulated(t)
	for _, load := range upTo800K {
		base, suspend0 := cell("base", load), cell("suspend0", load)
		t.Logf("%s: p99 %.0f against %.0f us, cycles %.0f against %.0f", load, suspend0.P99, base.P99, suspend0.Cycles, base.Cycles)
		if !within(suspend0.P99, base.P99, 0.30) {
			t.Errorf("%s: p99 of suspend0 is %.0f us, base %.0f: more than 30%% apart", load, suspend0.P99, base.P99)
		}
		if !within(suspend0.Cycles, base.Cycles, 0.20) {
			t.Errorf("%s: cycles of suspend0 are %.0f, base %.0f: more than 20%% apart", load, suspend0.Cycles, base.Cycles)
		}
	}
}

func TestFullBusyPollingUsesAllOfTheCPU(t *testing.T) {
	cell := simulated(t)
	for _, load := range DefaultLoads() {
		if cpu := cell("fullbusy", load).CPU; cpu < 99 || cpu > 101 {
			t.Errorf("%s: fullbusy uses %.1f%% of the CPU, want 100", load, cpu)
		}
	}
}

func TestSmallFlushTimeoutsCollapseEarlier(t *testing.T) {
	cell := simulated(t)
	order := []string{"defer10", "defer20", "defer50"}
	for i := range len(order) - 1 {
		small, large := order[i], order[i+1]
		if s, l := cell(small, "MAX").QPS, cell(large, "MAX").QPS; s >= l {
			t.Errorf("MAX: %s reaches %.0f requests/s and %s %.0f: the smaller timeout must saturate first", small, s, large, l)
		}
		if s, l := cell(small, "1000K").P95, cell(large, "1000K").P95; s <= l {
			t.Errorf("1000K: p95 of %s is %.0f us and of %s %.0f: the smaller timeout must collapse first", small, s, large, l)
		}
	}
	if p99 := cell("defer10", "600K").P99; p99 > 300 {
		t.Errorf("600K: p99 of defer10 is %.0f us: it collapsed where the published one did not", p99)
	}
}

func TestSuspensionComesCloseToFullBusyPollingAtLessCPU(t *testing.T) {
	cell := simulated(t)
	for _, name := range []string{"suspend20", "suspend50"} {
		for _, load := range upTo800K {
			full, got := cell("fullbusy", load), cell(name, load)
			t.Logf("%s at %s: p99 %.0f against %.0f us, CPU %.0f%%", name, load, got.P99, full.P99, got.CPU)
			if got.P99 > 1.40*full.P99 {
				t.Errorf("%s at %s: p99 is %.0f us, more than 40%% above fullbusy's %.0f", name, load, got.P99, full.P99)
			}
		}
		for load, share := range map[string]float64{"200K": 0.35, "800K": 0.80} {
			if got, full := cell(name, load).CPU, cell("fullbusy", load).CPU; got > share*full {
				t.Errorf("%s at %s: CPU is %.0f%%, more than %.2f of fullbusy's %.0f%%", name, load, got, share, full)
			}
		}
	}
}

func TestThroughputOrderInTheClosedLoop(t *testing.T) {
	cell := simulated(t)
	qps := func(name string) float64 { return cell(name, "MAX").QPS }
	for _, name := range []string{"fullbusy", "suspend10", "suspend20", "suspend50", "suspend200"} {
		if qps(name) <= qps("defer50") {
			t.Errorf("%s reaches %.0f requests/s, defer50 %.0f", name, qps(name), qps("defer50"))
		}
	}
	order := []string{"defer50", "base", "defer20", "defer10"}
	for i := range len(order) - 1 {
		t.Logf("%s %.0f, %s %.0f", order[i], qps(order[i]), order[i+1], qps(order[i+1]))
		if qps(order[i]) <= qps(order[i+1]) {
			t.Errorf("%s reaches %.0f requests/s, %s %.0f: wrong order", order[i], qps(order[i]), order[i+1], qps(order[i+1]))
		}
	}
}

func TestSaturatedCellsAreMarked(t *testing.T) {
	cell := simulated(t)
	for name, want := range map[string]bool{
		"base at 200K": false, "suspend20 at 600K": false, "fullbusy at 200K": false,
		"base at MAX": true, "defer10 at 1000K": true, "suspend20 at MAX": true,
	} {
		setting, load, _ := strings.Cut(name, " at ")
		if got := cell(setting, load).Saturated(); got != want {
			t.Errorf("%s: saturated is %v, want %v", name, got, want)
		}
	}
}

// fittedLimits are the largest median errors on the loads that were fitted.
var fittedLimits = map[string]float64{"qps": 0.01, "avg": 0.03, "p95": 0.05, "p99": 0.07, "cpu": 0.03, "cpq": 0.03}

func TestPresetReproducesThePublishedTable(t *testing.T) {
	cell := simulated(t)
	want := published(t)
	var got []Cell
	for _, w := range want {
		got = append(got, cell(w.Case, w.Load).Cell)
	}
	errors := Errors(got, want)
	var text strings.Builder
	if err := WriteErrors(&text, errors); err != nil {
		t.Fatal(err)
	}
	t.Logf("errors against the published table:\n%s", text.String())
	for _, e := range errors {
		if e.Load != "" {
			continue
		}
		if limit := fittedLimits[e.Column]; e.Median > limit {
			t.Errorf("median error of %s is %.1f%%, limit %.1f%%", e.Column, 100*e.Median, 100*limit)
		}
	}
}

// What the model is for is to order settings.
func TestCasesHaveThePublishedOrder(t *testing.T) {
	cell := simulated(t)
	want := published(t)
	var got []Cell
	for _, w := range want {
		got = append(got, cell(w.Case, w.Load).Cell)
	}
	for _, e := range Errors(got, want) {
		if e.Load == "" || (e.Column != "avg" && e.Column != "p95" && e.Column != "p99") {
			continue
		}
		limit := 0.93
		if e.Load == "MAX" {
			limit = 0.88
		}
		t.Logf("%s at %s: %.3f", e.Column, e.Load, e.Spearman)
		if e.Spearman < limit {
			t.Errorf("rank correlation of %s at %s is %.3f, want at least %.2f", e.Column, e.Load, e.Spearman, limit)
		}
	}
}

// Busy polling with a flush timeout falls in the closed loop into two states:
// queues whose NAPI follows the thread, where polls away from the interrupt's
// core end at 63 packets, and queues whose softirq stays behind.
func TestBusyPollingInTheClosedLoopHasTwoStates(t *testing.T) {
	cell := simulated(t)
	work := cell("napibusy", "MAX").Runs[0].Work
	packets := 0.0
	for n, polls := range work {
		packets += float64(n) * float64(polls)
	}
	share := 63 * float64(work[63]) / packets
	t.Logf("%.2f of packets in polls of 63, published 0.25", share)
	if share < 0.1 || share > 0.45 {
		t.Errorf("%.2f of packets are in polls of 63, want 0.1 to 0.45", share)
	}
	if got, least := cell("napibusy", "MAX").P99, 1.3*cell("defer200", "MAX").P99; got < least {
		t.Errorf("p99 is %.0f us, want at least 1.3 times that of defer200, %.0f", got, least)
	}
}

func TestMechanismCountersAgreeWithThePublishedOnes(t *testing.T) {
	measured, err := ReadCounters(shared(t, "irqsuspend_v6_summary_calibration.csv"))
	if err != nil {
		t.Fatal(err)
	}
	cell := simulated(t)
	var rows []Row
	for _, m := range measured {
		rows = append(rows, *cell(m.Case, m.Load))
	}
	for _, e := range CounterErrors(rows, measured) {
		t.Logf("%-14s median %.1f%%, max %.0f%% (%s), %d cells", e.Counter, 100*e.Median, 100*e.Max, e.Worst, e.Cells)
		if e.Median > 0.15 {
			t.Errorf("median error of %s is %.1f%%, limit 15%%", e.Counter, 100*e.Median)
		}
	}
}

func TestHistogramsAgreeWithThePublishedOnes(t *testing.T) {
	for _, file := range []struct {
		name  string
		first int // the first value compared: background polls find 0 or 1 packets
		got   func(*Result) *[66]uint64
	}{
		{"irqsuspend_v6_poll_work_calibration.csv", 2, func(r *Result) *[66]uint64 { return &r.Work }},
		{"irqsuspend_v6_epoll_events_calibration.csv", 1, func(r *Result) *[66]uint64 { return &r.Waits }},
	} {
		t.Run(file.name, func(t *testing.T) {
			histograms, err := ReadHistograms(shared(t, file.name))
			if err != nil {
				t.Fatal(err)
			}
			cell := simulated(t)
			var distances []float64
			for _, w := range published(t) {
				want, ok := histograms[w.Case+"/"+w.Load]
				if !ok {
					t.Fatalf("no histogram of %s at %s", w.Case, w.Load)
				}
				d := HistogramDistance(file.got(&cell(w.Case, w.Load).Runs[0]), want, file.first)
				distances = append(distances, d)
				t.Logf("%-10s %-5s total variation distance %.3f", w.Case, w.Load, d)
			}
			if m := median(distances); m > 0.25 {
				t.Errorf("median distance is %.3f, limit 0.25", m)
			}
		})
	}
}

// The sensitivities that the published study states.
func TestSensitivities(t *testing.T) {
	run := func(setting, load string) Result {
		t.Helper()
		c, err := ParseSetting(setting)
		if err != nil {
			t.Fatal(err)
		}
		l, err := ParseLoad(load)
		if err != nil {
			t.Fatal(err)
		}
		r, err := Run(context.Background(), Options{
			Case: c, Load: l, Seed: 6, Duration: 500 * time.Millisecond, Warmup: 100 * time.Millisecond,
		})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	suspend := func(count int, extra string) string {
		return fmt.Sprintf("defer=%d,flush=20us,suspend=20ms,prefer=true,budget=64%s", count, extra)
	}
	t.Run("defer 5 to 100 are equivalent at 20 us", func(t *testing.T) {
		few, many := run(suspend(5, ""), "200K"), run(suspend(100, ""), "200K")
		if !within(few.P99Us, many.P99Us, 0.10) {
			t.Errorf("p99 is %.0f us with defer 5, %.0f with 100", few.P99Us, many.P99Us)
		}
	})
	t.Run("defer 1 raises p99", func(t *testing.T) {
		one, many := run(suspend(1, ""), "200K"), run(suspend(100, ""), "200K")
		if one.P99Us < 1.3*many.P99Us {
			t.Errorf("p99 is %.0f us with defer 1, %.0f with 100: want at least 1.3 times", one.P99Us, many.P99Us)
		}
	})
	t.Run("the budget has no effect below saturation", func(t *testing.T) {
		small, large := run(suspend(100, ""), "600K"), run(strings.Replace(suspend(100, ""), "budget=64", "budget=256", 1), "600K")
		if !within(small.P99Us, large.P99Us, 0.05) {
			t.Errorf("p99 is %.0f us with budget 64, %.0f with 256", small.P99Us, large.P99Us)
		}
	})
	t.Run("a budget of 256 costs throughput at saturation", func(t *testing.T) {
		small, large := run(suspend(100, ""), "MAX"), run(strings.Replace(suspend(100, ""), "budget=64", "budget=256", 1), "MAX")
		if large.QPS > 0.98*small.QPS {
			t.Errorf("%.0f requests/s with budget 64, %.0f with 256: want at least 2%% less", small.QPS, large.QPS)
		}
	})
	t.Run("a short suspend timeout falls back to softirqs at saturation", func(t *testing.T) {
		long, short := run("suspend20", "MAX"), run(strings.Replace(suspend(100, ""), "suspend=20ms", "suspend=100us", 1), "MAX")
		if short.QPS > 0.95*long.QPS || short.SoftirqPercent < 10*long.SoftirqPercent {
			t.Errorf("%.0f requests/s with 20 ms and %.0f with 100 us; softirq %.1f%% and %.1f%%",
				long.QPS, short.QPS, long.SoftirqPercent, short.SoftirqPercent)
		}
	})
}

func TestReadTableRefusesWhatIsNoTable(t *testing.T) {
	for name, text := range map[string]string{
		"empty":          "",
		"another header": "a,b\n1,2\n",
		"unknown case":   tableHeader + "\nnothing,200K,1,1,1,1,1,1,1\n",
		"unknown load":   tableHeader + "\nbase,fast,1,1,1,1,1,1,1\n",
		"no number":      tableHeader + "\nbase,200K,1,x,1,1,1,1,1\n",
		"zero latency":   tableHeader + "\nbase,200K,1,0,1,1,1,1,1\n",
	} {
		if cells, err := ReadTable(strings.NewReader(text)); err == nil {
			t.Errorf("%s: read as %v", name, cells)
		}
	}
}

func TestWriteTableHasThePublishedHeader(t *testing.T) {
	var b strings.Builder
	if err := WriteTable(&b, []Cell{{Case: "base", Load: "200K", QPS: 199954, Avg: 112, P95: 237, P99: 415, CPU: 26, Cycles: 13040}}); err != nil {
		t.Fatal(err)
	}
	if got, want := b.String(), tableHeader+"\nbase,200K,199954,112.0,237.0,415.0,26.0,13040,\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	data, err := os.ReadFile("../../testdata/irqsuspend_v6_calibration.csv")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(data), tableHeader+"\n") {
		t.Errorf("the published table's header is not %q", tableHeader)
	}
}
