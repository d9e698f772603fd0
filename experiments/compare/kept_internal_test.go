package compare

import (
	"testing"
	"time"
)

// What references choose by names their cells, and not those of policies.
func TestAKeptReferenceIsNamedByTheLoadsItChoseFrom(t *testing.T) {
	plan := Plan{
		Program: "test", Policies: []string{"aimd"}, Scenarios: []string{"step"}, Seeds: 1, FirstSeed: 1,
		SLO: 250 * time.Microsecond, Quantile: 0.99, Interval: 50 * time.Millisecond, Windows: 6, Preset: "epyc7662-cx5",
		Regime: RegimeDeferral, Latency: LatencyClient, Queues: 1, LoadScale: 1, MaxFlush: 20 * time.Microsecond,
	}
	p, err := plan.prepare()
	if err != nil {
		t.Fatal(err)
	}
	a, b := keptCells{loads: []float64{57.6, 1246}}, keptCells{loads: []float64{1648, 109124}}
	for _, c := range p.contenders() {
		j := job{seed: 1, contender: c}
		if same, policy := a.path(p, j) == b.path(p, j), c.spec != ""; same != policy {
			t.Errorf("%s has the same file with other loads: %v, want %v", c.name, same, policy)
		}
	}
}
