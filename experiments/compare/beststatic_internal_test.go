package compare

import (
	"math"
	"testing"
	"time"
)

// TestBestStaticIsTheBestOfAllItTries compares the search, which gives each
// setting up as soon as it has lost, with one that simulates all to the end: at
// a target that a setting meets, and at one that none does.
func TestBestStaticIsTheBestOfAllItTries(t *testing.T) {
	for _, tc := range []struct {
		name     string
		slo      time.Duration
		feasible bool
	}{
		{"some hold the target", 280 * time.Microsecond, true},
		{"none does at the highest load", 165 * time.Microsecond, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := Plan{
				Program: "test", Scenarios: []string{"step"}, Seeds: 1, FirstSeed: 1, SLO: tc.slo, Quantile: 0.99,
				Interval: 50 * time.Millisecond, Windows: 20, Preset: "epyc7662-cx5", Regime: RegimeSuspend, Latency: LatencyClient,
				Queues: 1, LoadScale: 1, MaxFlush: 50 * time.Microsecond,
			}
			p, err := plan.prepare()
			if err != nil {
				t.Fatal(err)
			}
			table, err := p.loadSteady(t.Context(), "", 2, func(string) {})
			if err != nil {
				t.Fatal(err)
			}
			s, windows, err := p.scenario(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.bestStatic(t.Context(), table, s, windows, 1)
			if err != nil {
				t.Fatal(err)
			}
			least, cheapest := math.Inf(1), math.Inf(1)
			for _, setting := range table.Settings {
				cell, err := p.fixedCell(t.Context(), s, windows, 1, refBestStatic, setting)
				if err != nil {
					t.Fatal(err)
				}
				share := violatingShare(cell.Windows)
				least = min(least, share)
				if share <= maxViolating {
					cheapest = min(cheapest, p.cost(&cell))
				}
			}
			if len(got.Windows) != windows {
				t.Fatalf("%d windows of %d", len(got.Windows), windows)
			}
			if feasible := least <= maxViolating; feasible != tc.feasible {
				t.Fatalf("the least share of violating windows is %v: the case is not what it says", least)
			}
			share := violatingShare(got.Windows)
			switch {
			case share != least && !tc.feasible:
				t.Errorf("%v violates in %v of the windows, another setting in %v", got.Setting, share, least)
			case tc.feasible && share > maxViolating:
				t.Errorf("%v violates in %v of the windows, where others hold", got.Setting, share)
			case tc.feasible && p.cost(&got) > 1.01*cheapest:
				// The order of the search is that of steady states.
				t.Errorf("%v costs %v, another setting %v", got.Setting, p.cost(&got), cheapest)
			}
		})
	}
}
