package demo

import (
	"fmt"
	"slices"

	"autotune/model"
)

// pairs holds the complete rounds: base[round][phase] and contender alike,
// with phases in order.
type pairs struct {
	rounds          []int
	phases          []Row // of the contender's first complete round
	base, contender [][]Row
	// doubtful says that the rows cannot be judged by.
	doubtful bool
}

// pair arranges the rows and judges whether they suffice.
func pair(rows []Row, c Criteria) (pairs, Criterion) {
	evidence := Criterion{Name: CriterionEvidence, Outcome: Met}
	type key struct {
		round int
		name  string
		phase string
	}
	cells := map[key]Row{}
	var rounds []int
	var phases []string
	var doubts []string
	for _, r := range rows {
		if r.Contender != c.Base && r.Contender != c.Contender {
			continue
		}
		k := key{r.Round, r.Contender, r.Phase}
		if _, twice := cells[k]; twice {
			doubts = append(doubts, fmt.Sprintf("round %d holds phase %q of %s twice", r.Round, r.Phase, r.Contender))
		}
		cells[k] = r
		if !slices.Contains(rounds, r.Round) {
			rounds = append(rounds, r.Round)
		}
		if !slices.Contains(phases, r.Phase) {
			phases = append(phases, r.Phase)
		}
	}
	slices.Sort(rounds)
	var out pairs
	last := 0
	for _, round := range rounds {
		// Rounds count from 1, so that a gap is a round without a trace.
		if round != last+1 {
			doubts = append(doubts, fmt.Sprintf("nothing is left of round %d", last+1))
		}
		last = round
		var base, contender []Row
		for _, phase := range phases {
			b, okBase := cells[key{round, c.Base, phase}]
			t, okContender := cells[key{round, c.Contender, phase}]
			if okBase && okContender {
				base, contender = append(base, b), append(contender, t)
			}
		}
		if len(base) < len(phases) {
			doubts = append(doubts, fmt.Sprintf("round %d was not finished", round))
			continue
		}
		out.rounds = append(out.rounds, round)
		out.base, out.contender = append(out.base, base), append(out.contender, contender)
		for _, r := range slices.Concat(base, contender) {
			if doubt := doubtful(r); doubt != "" {
				doubts = append(doubts, fmt.Sprintf("round %d, %s, phase %q: %s", round, r.Contender, r.Phase, doubt))
			}
		}
	}
	if len(out.rounds) > 0 {
		out.phases = out.contender[0]
		for _, load := range []Load{LoadLow, LoadHigh} {
			if len(out.of(load)) == 0 {
				doubts = append(doubts, fmt.Sprintf("no phase has %s load", load))
			}
		}
	}
	if n := len(out.rounds); n < MinRounds {
		doubts = append([]string{fmt.Sprintf("%s of %s and %s; %d are needed", model.Count(n, "complete round"), c.Base, c.Contender, MinRounds)}, doubts...)
	}
	if len(doubts) > 0 {
		evidence.Outcome = Undecided
		evidence.Reason = summarise(doubts)
		out.doubtful = true
		return out, evidence
	}
	evidence.Reason = fmt.Sprintf("%s, every quantity known", model.Count(len(out.rounds), "complete round"))
	return out, evidence
}

// doubtful returns what makes a row unfit to judge by, or nothing.
func doubtful(r Row) string {
	if _, ok := r.cpuPerRequest(); !ok {
		return "CPU per request is not known"
	}
	switch {
	case r.P90 == nil || *r.P90 <= 0:
		return "p90 is not known"
	case r.RawP90 == nil || *r.RawP90 <= 0:
		return "the raw p90 is not known"
	case r.Offered <= 0:
		return "the offered rate is not known"
	case r.Requests == 0:
		return "no request was answered"
	case r.OtherCPU == nil:
		return "what else used the server's CPU is not known"
	case *r.OtherCPU > MaxOther:
		return fmt.Sprintf("the machine is too busy, %.0f%% of the server's CPU went elsewhere", 100**r.OtherCPU)
	case r.Observed <= 0 || r.LostEvents == nil:
		return "the tuner saw nothing of it"
	case *r.LostEvents > 0:
		return fmt.Sprintf("the probes lost %s", model.Count(*r.LostEvents, "event"))
	}
	return ""
}

// of returns the indices of phases with that load.
func (p pairs) of(load Load) []int {
	var out []int
	for i, r := range p.phases {
		if r.Load == load {
			out = append(out, i)
		}
	}
	return out
}
