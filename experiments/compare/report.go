package compare

import (
	"fmt"
	"math"
	"slices"
)

// Report is what a complete set of cells comes to.
type Report struct {
	Plan Plan
	// Metrics are per cell, in the plan's order.
	Metrics []Metrics
	// Summaries are per scenario and contender; with several scenarios the last
	// are of all together.
	Summaries []Summary
	// Comparisons are of every two contenders in every scenario.
	Comparisons []Comparison

	scenarios []string
	cells     []Cell
}

// NewReport judges the cells of a whole plan, in its order.
func NewReport(plan Plan, cells []Cell) (*Report, error) {
	r := &Report{Plan: plan, cells: cells}
	groups := map[key]group{}
	violating := map[key]float64{}
	for i := range cells {
		c := &cells[i]
		if !slices.Contains(r.scenarios, c.Scenario) {
			r.scenarios = append(r.scenarios, c.Scenario)
		}
		k := key{c.Scenario, c.Seed, ""}
		if groups[k] == nil {
			groups[k] = group{}
		}
		groups[k][c.Contender] = c
		if c.Contender == refBestStatic {
			violating[k] = violatingShare(c.Windows[min(plan.Skip, len(c.Windows)):])
		}
	}
	names := plan.Contenders()
	if want := len(r.scenarios) * plan.Seeds * len(names); len(cells) != want || len(cells) == 0 {
		return nil, fmt.Errorf("report: %d cells of %d: %w", len(cells), want, ErrShards)
	}
	by := map[key][]Metrics{} // by scenario and contender
	for i := range cells {
		c := &cells[i]
		m := plan.metrics(c, groups[key{c.Scenario, c.Seed, ""}])
		r.Metrics = append(r.Metrics, m)
		k := key{c.Scenario, 0, c.Contender}
		by[k] = append(by[k], m)
	}
	rows := slices.Clone(r.scenarios)
	if len(rows) > 1 {
		rows = append(rows, AllScenarios)
		for _, name := range names {
			for n := range plan.Seeds {
				var same []Metrics
				for _, s := range r.scenarios {
					same = append(same, by[key{s, 0, name}][n])
				}
				all := together(same)
				k := key{AllScenarios, 0, name}
				by[k] = append(by[k], all)
				if name == refBestStatic {
					violating[key{AllScenarios, all.Seed, ""}] = all.ViolatingWindows
				}
			}
		}
	}
	for _, s := range rows {
		for i, a := range names {
			r.Summaries = append(r.Summaries, summarise(by[key{s, 0, a}], violating))
			for _, b := range names[i+1:] {
				r.Comparisons = append(r.Comparisons, compare(by[key{s, 0, a}], by[key{s, 0, b}]))
			}
		}
	}
	return r, nil
}

// Against returns the comparison of a with b in a scenario, as seen from a.
func (r *Report) Against(scenario, a, b string) (Comparison, bool) {
	for _, c := range r.Comparisons {
		switch {
		case c.Scenario != scenario:
		case c.A == a && c.B == b:
			return c, true
		case c.A == b && c.B == a:
			return c.reversed(), true
		}
	}
	return Comparison{}, false
}

func (c Comparison) reversed() Comparison {
	out := c
	out.A, out.B = c.B, c.A
	switch c.Outcome {
	case Win:
		out.Outcome = Loss
	case Loss:
		out.Outcome = Win
	case Tie, Undecided:
	}
	out.MoreViolating.Estimate, out.MoreViolating.Low, out.MoreViolating.High = -c.MoreViolating.Estimate, -c.MoreViolating.High, -c.MoreViolating.Low
	out.CostRatio.Estimate, out.CostRatio.Low, out.CostRatio.High = 1/c.CostRatio.Estimate, 1/c.CostRatio.High, 1/c.CostRatio.Low
	if math.IsInf(c.CostRatio.High, 1) {
		out.CostRatio.Low, out.CostRatio.High = math.Inf(-1), math.Inf(1)
	}
	return out
}

// refusals adds up what guards refused a contender in a scenario, or in all.
func (r *Report) refusals(scenario, contender string) map[string]int {
	out := map[string]int{}
	for i := range r.cells {
		if c := &r.cells[i]; c.Contender == contender && (scenario == AllScenarios || scenario == c.Scenario) {
			for guard, n := range c.Refusals {
				out[guard] += n
			}
		}
	}
	return out
}
