package compare_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"autotune/experiments/compare"

	"github.com/google/go-cmp/cmp"
)

func keptPlan(program string, policies ...string) compare.Plan {
	return compare.Plan{
		Program: program, Policies: policies, References: []string{}, Scenarios: []string{"step"}, Seeds: 2, FirstSeed: 1,
		SLO: 250 * time.Microsecond, Quantile: 0.99, Interval: 50 * time.Millisecond, Windows: 6, Preset: "epyc7662-cx5",
		Regime: compare.RegimeDeferral, Latency: compare.LatencyClient, Queues: 1, Guarded: true, LoadScale: 1, MaxFlush: 20 * time.Microsecond,
	}
}

// rowsOf runs a plan and returns its raw rows.
func rowsOf(t *testing.T, plan compare.Plan, o compare.RunOptions) []byte {
	t.Helper()
	cells, err := compare.Run(t.Context(), &plan, o)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := compare.WriteRaw(dir, plan, 0, 0, cells); err != nil {
		t.Fatal(err)
	}
	rows, err := os.ReadFile(filepath.Join(dir, compare.RowsFile))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// keptFiles returns the files of a directory with their times.
func keptFiles(t *testing.T, dir string) map[string]time.Time {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]time.Time{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			t.Fatal(err)
		}
		out[e.Name()] = info.ModTime()
	}
	return out
}

// A comparison that takes kept cells over has the bytes of one that simulates
// all, whatever is missing or damaged, and adds only what is new.
func TestKeptCellsChangeNoByte(t *testing.T) {
	dir := t.TempDir()
	whole := rowsOf(t, keptPlan("a", "aimd"), compare.RunOptions{})
	if got := rowsOf(t, keptPlan("a", "aimd"), compare.RunOptions{Kept: dir}); !bytes.Equal(got, whole) {
		t.Error("other rows where cells are kept")
	}
	before := keptFiles(t, dir)
	if want := 2 * 4; len(before) != want { // base, best-static, oracle, aimd
		t.Fatalf("%d kept cells, want %d", len(before), want)
	}
	var damaged string
	for name := range before {
		if strings.HasPrefix(name, "step-2-oracle") {
			damaged = name
		}
	}
	path := filepath.Join(dir, damaged)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 0x40
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	before = keptFiles(t, dir)
	if got := rowsOf(t, keptPlan("a", "aimd"), compare.RunOptions{Kept: dir}); !bytes.Equal(got, whole) {
		t.Error("other rows from kept cells, one of them damaged")
	}
	after := keptFiles(t, dir)
	for name := range before {
		if again := before[name] != after[name]; again != (name == damaged) {
			t.Errorf("%s: simulated again: %v, damaged: %v", name, again, name == damaged)
		}
	}
	rowsOf(t, keptPlan("a", "aimd", "pi"), compare.RunOptions{Kept: dir})
	if got, want := len(keptFiles(t, dir)), len(before)+2; got != want {
		t.Errorf("%d kept cells with a policy more, want %d", got, want)
	}
}

// Another build's cells are not taken, but for references where the caller
// vouches for the simulator.
func TestKeptCellsOfAnotherBuild(t *testing.T) {
	for _, tc := range []struct {
		name string
		any  bool
		want int
	}{
		{"all again", false, 16},
		{"references are taken", true, 8 + 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			o := compare.RunOptions{Kept: dir, AnyBuild: tc.any}
			a := rowsOf(t, keptPlan("a", "aimd"), o)
			b := rowsOf(t, keptPlan("b", "aimd"), o)
			if diff := cmp.Diff(a, b); diff != "" {
				t.Error("two builds with the same code differ")
			}
			if got := len(keptFiles(t, dir)); got != tc.want {
				t.Errorf("%d kept cells, want %d", got, tc.want)
			}
		})
	}
}
