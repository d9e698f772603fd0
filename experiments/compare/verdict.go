package compare

import (
	"math"

	"autotune/experiments/stats"
)

// Outcome is how one contender does against another.
type Outcome string

// The outcomes. Undecided stands where there are too few seeds for intervals.
const (
	Win       Outcome = "win"
	Tie       Outcome = "tie"
	Loss      Outcome = "loss"
	Undecided Outcome = "undecided"
)

// leastSeeds is the number of seeds from which on intervals have their level.
const leastSeeds = 5

// Comparison is contender A against B in one scenario, paired by seed.
//
// The target comes first, as it does for a user: the share of violating windows
// beyond 1% is compared, and only where its difference has an interval that
// includes zero the CPU per request decides. A contender that does nothing, or
// that is cheap because it violates, cannot win so.
type Comparison struct {
	Scenario string  `json:"scenario"`
	A        string  `json:"a"`
	B        string  `json:"b"`
	Outcome  Outcome `json:"outcome"`
	// By is what decided: violations or cost; empty for a tie.
	By string `json:"decided_by"`
	// MoreViolating is A's share of violating windows beyond 1% less B's,
	// CostRatio A's cycles per request over B's.
	MoreViolating stats.Interval `json:"excess_violating_share_difference"`
	CostRatio     stats.Interval `json:"cost_ratio"`
}

// compare judges two contenders by their cells of one scenario, which are in
// the same order of seeds.
func compare(a, b []Metrics) Comparison {
	c := Comparison{Scenario: a[0].Scenario, A: a[0].Contender, B: b[0].Contender}
	var more, ratios []float64
	beyond := func(m *Metrics) float64 { return max(0, m.ViolatingWindows-maxViolating) }
	for i := range a {
		more = append(more, beyond(&a[i])-beyond(&b[i]))
		ratios = append(ratios, ratio(a[i].CyclesPerRequest, b[i].CyclesPerRequest))
	}
	c.MoreViolating, c.CostRatio = mean(more), geometric(ratios)
	c.Outcome, c.By = decide(c.MoreViolating, c.CostRatio, len(a))
	return c
}

func decide(moreViolating, costRatio stats.Interval, seeds int) (Outcome, string) {
	if seeds < leastSeeds {
		return Undecided, ""
	}
	for _, d := range []struct {
		by       string
		interval stats.Interval
		zero     float64
	}{{"violations", moreViolating, 0}, {"cost", costRatio, 1}} {
		switch {
		case math.IsNaN(d.interval.Estimate):
		case d.interval.High < d.zero:
			return Win, d.by
		case d.interval.Low > d.zero:
			return Loss, d.by
		}
	}
	return Tie, ""
}
