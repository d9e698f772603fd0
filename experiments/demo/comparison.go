package demo

import (
	"fmt"
	"slices"
	"strings"

	"autotune/experiments/stats"
	"autotune/model"
)

// Comparison holds the judged contender's CPU over whole turns, all phases
// together, against that of one other. It is no part of the [Verdict]: a
// setting that is cheaper and breaks the SLO takes nothing from the one that
// holds it.
type Comparison struct {
	Contender string `json:"contender"`
	Other     string `json:"other"`
	// Rounds is the number of rounds in which all phases of both can be judged
	// by; only those are compared.
	Rounds int `json:"rounds"`
	// CPURatio is CPU per request over the other's, paired by round, with its
	// 90% interval.
	CPURatio stats.Interval `json:"cpu_per_request_ratio"`
	// Outcome is met where the whole interval is below 1, missed where it is
	// above, and undecided otherwise, as it is with fewer than [MinRounds], or
	// with fewer than were run.
	Outcome Outcome `json:"outcome"`
	// SLOBroken names the phases in which the other's p90, the geometric mean
	// over its rounds, is above the SLO.
	SLOBroken []string `json:"other_slo_broken_phases"`
}

// Compare compares the judged contender with every other, in their order. With
// no more than the default contenders there is nothing that the verdict does
// not say, and the result is empty; so it is for a quick look.
func Compare(run RunInfo, rows []Row) []Comparison {
	if run.Quick || len(run.Contenders) <= len(DefaultContenders()) {
		return nil
	}
	summaries := Summarise(run, rows)
	own := turnCosts(run, rows, run.Judged)
	var out []Comparison
	for _, other := range run.Contenders {
		if other.Name == run.Judged {
			continue
		}
		c := Comparison{Contender: run.Judged, Other: other.Name, Outcome: Undecided, SLOBroken: []string{}}
		theirs := turnCosts(run, rows, other.Name)
		var treated, control []float64
		for round := 1; round <= run.Rounds; round++ {
			if own[round] > 0 && theirs[round] > 0 {
				treated, control = append(treated, own[round]), append(control, theirs[round])
			}
		}
		c.Rounds = len(treated)
		c.CPURatio = stats.Bootstrap{Seed: run.Seed}.Ratio(treated, control)
		switch {
		case c.Rounds < max(run.Rounds, MinRounds) || !c.CPURatio.Bounded():
		case c.CPURatio.High < 1:
			c.Outcome = Met
		case c.CPURatio.Low > 1:
			c.Outcome = Missed
		}
		for _, s := range summaries {
			if s.Contender == other.Name && s.P90.Estimate > float64(run.Calibration.SLO) {
				c.SLOBroken = append(c.SLOBroken, s.Phase)
			}
		}
		out = append(out, c)
	}
	return out
}

// turnCosts returns the contender's CPU per request over all phases, in
// nanoseconds, by round; a round that was not finished, or that cannot be judged
// by, is missing.
func turnCosts(run RunInfo, rows []Row, contender string) map[int]float64 {
	cpu, requests, phases := map[int]float64{}, map[int]float64{}, map[int]int{}
	for _, r := range rows {
		if r.Contender != contender || doubtful(r) != "" {
			continue
		}
		perRequest, _ := r.cpuPerRequest()
		cpu[r.Round] += perRequest * float64(r.Requests)
		requests[r.Round] += float64(r.Requests)
		phases[r.Round]++
	}
	out := map[int]float64{}
	for round, n := range phases {
		if n == len(run.Phases) && requests[round] > 0 {
			out[round] = cpu[round] / requests[round]
		}
	}
	return out
}

func (c Comparison) String() string {
	words := map[Outcome]string{Met: "below", Missed: "above", Undecided: "undecided"}
	slo := "which holds the SLO"
	if len(c.SLOBroken) > 0 {
		slo = "which breaks the SLO (" + strings.Join(c.SLOBroken, ", ") + ")"
	}
	return fmt.Sprintf("%s: %s in %s against %s, %s", words[c.Outcome], ratioCell(c.CPURatio), model.Count(c.Rounds, "round"), c.Other, slo)
}

func writeComparisons(b *strings.Builder, result Result) {
	comparisons := Compare(result.Run, result.Rows)
	if len(comparisons) == 0 {
		return
	}
	few := false
	fmt.Fprintf(b, "\nCPU per request of %s over all phases together:\n", result.Run.Judged)
	for _, c := range comparisons {
		fmt.Fprintf(b, "  %v\n", c)
		few = few || c.Rounds < result.Run.Rounds
	}
	if few {
		b.WriteString("Rounds are left out in which something makes a phase of either unfit to judge by; nothing is decided without them.\n")
	}
	if !slices.ContainsFunc(comparisons, func(c Comparison) bool { return c.Outcome != Met }) {
		fmt.Fprintf(b, "It is below every other.\n")
	}
}
