package demo

import (
	"fmt"
	"math"
	"strings"
	"time"

	"autotune/experiments/stats"
	"autotune/model"
)

// What a contender must do to meet the criteria.
const (
	// MinRounds is the fewest rounds that can be judged: no bootstrap
	// interval reaches 90% with fewer (see [stats.Bootstrap.Mean]).
	MinRounds = 5
	// HighRatio is the most CPU per request, as a ratio to the base, under
	// high load.
	HighRatio = 0.92
	// LowRatio is the same under low load.
	LowRatio = 1.05
	// MinAchieved is the least share of the offered requests that must be
	// answered: below it latency and cost are not those of the same load.
	MinAchieved = 0.98
	// MaxExcluded is the greatest share of requests that scheduling gaps may
	// take out of the percentiles. Those that wait for a gap to end are the
	// slow ones: where more is taken out than lies above the p90, what is left
	// says nothing of it.
	MaxExcluded = 0.1
	// MaxMoreExcluded is by how much the contender's share may exceed that of
	// the base in the same phase of the same round. Undisturbed, the two are
	// within about one percentage point of each other.
	MaxMoreExcluded = 0.02
	// MaxOther is the greatest share of the server's CPU that may go to
	// anything but server and NAPI thread. A CPU that others keep busy makes
	// requests wait and batch up by itself, whatever the setting.
	MaxOther = 0.25
)

// Criteria names what [Judge] compares.
type Criteria struct {
	// Base and Contender are contenders' names.
	Base, Contender string
	// Seed drives bootstrap intervals over more rounds than can be
	// enumerated.
	Seed uint64
}

// The criteria's names.
const (
	CriterionEvidence = "evidence"
	CriterionLoad     = "load"
	CriterionSLO      = "SLO"
	CriterionHigh     = "CPU under high load"
	CriterionLow      = "CPU under low load"
	CriterionChanges  = "knob changes"
)

// Judge decides whether the contender met the criteria against the base.
//
// All of them must be met, so an undeserved pass needs its worst criterion to
// err: each is held at its own 5% (one end of a 90% interval) and no
// correction for their number is called for.
//
// Rounds are paired: each phase is compared with the same phase of the base in
// the same round, and the round is the unit that is resampled. Phases and
// windows within it are not independent of each other.
//
//   - evidence: at least [MinRounds] rounds, in each of which base and
//     contender ran every phase, with every quantity known, no event lost and
//     no more than [MaxOther] of the server's CPU taken. A round that was begun
//     and not finished is not left out: what kept it from its end may have to
//     do with what is judged. Without evidence all is undecided.
//   - load: at least [MinAchieved] of the offered requests answered.
//   - SLO: p90 at or below the SLO in every phase of every round. Missed if
//     the mean over rounds is above it with its whole interval, or half of the
//     rounds are; a breach short of that, or one that the base shows as often,
//     is undecided. Undecided rather than met also if in any phase of any
//     round more than [MaxExcluded] of either's requests were excluded,
//     [MaxMoreExcluded] more of the contender's than of the base's, or if the
//     raw p90 is above both the SLO and the base's: a busy machine makes raw
//     latencies long, but it does so to the base as well. None of these excuses
//     a miss, since the requests that were excluded are the slow ones.
//   - CPU under high load: the estimate at most [HighRatio] of the base, and
//     the interval below 1. Missed if estimate and interval are above
//     HighRatio.
//   - CPU under low load: the whole interval of all low phases, and the
//     estimate of each, at most [LowRatio] of the base. Missed if the interval
//     of all, or of any, is above it.
//   - knob changes: at least one in either direction in every round.
//
// More CPU, latency or exclusion of the contender never improves an outcome.
func Judge(rows []Row, slo time.Duration, c Criteria) Verdict {
	v := Verdict{Contender: c.Contender, Base: c.Base, Outcome: Met}
	table, evidence := pair(rows, c)
	if slo <= 0 {
		evidence.Outcome = Undecided
		evidence.Reason = "no SLO was fixed"
	}
	v.add(evidence)
	if len(table.rounds) == 0 {
		return v
	}
	bootstrap := stats.Bootstrap{Seed: c.Seed}
	criteria := []Criterion{table.load()}
	if slo > 0 {
		criteria = append(criteria, table.slo(slo, bootstrap))
	}
	criteria = append(criteria, table.high(bootstrap), table.low(bootstrap), table.changes())
	for _, criterion := range criteria {
		if table.doubtful {
			// Neither a pass nor a miss. The intervals of too few rounds,
			// for one, are too narrow for either.
			criterion.Outcome = Undecided
		}
		v.add(criterion)
	}
	return v
}

// summarise joins the first few of the lines.
func summarise(lines []string) string {
	const most = 3
	if len(lines) <= most {
		return strings.Join(lines, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(lines[:most], "; "), len(lines)-most)
}

func (p pairs) load() Criterion {
	c := Criterion{Name: CriterionLoad, Outcome: Met}
	least, where := math.Inf(1), ""
	var short []string
	for i, round := range p.rounds {
		for phase, r := range p.contender[i] {
			share := achievedShare(r)
			if share < least {
				least, where = share, fmt.Sprintf("round %d, phase %q", round, r.Phase)
			}
			if share >= MinAchieved {
				continue
			}
			if base := achievedShare(p.base[i][phase]); base < MinAchieved {
				c.Outcome = c.Outcome.worst(Undecided)
				short = append(short, fmt.Sprintf("round %d, phase %q: %.1f%%, but the base answered only %.1f%%", round, r.Phase, 100*share, 100*base))
			} else {
				c.Outcome = Missed
				short = append(short, fmt.Sprintf("round %d, phase %q: %.1f%%", round, r.Phase, 100*share))
			}
		}
		for _, r := range p.base[i] {
			if share := achievedShare(r); share < MinAchieved {
				c.Outcome = c.Outcome.worst(Undecided)
				short = append(short, fmt.Sprintf("round %d, phase %q: the base answered only %.1f%%", round, r.Phase, 100*share))
			}
		}
	}
	if len(short) > 0 {
		c.Reason = fmt.Sprintf("fewer than %.0f%% of the offered requests were answered: %s", 100*MinAchieved, summarise(short))
		return c
	}
	c.Reason = fmt.Sprintf("at least %.1f%% of the offered requests answered (%s)", 100*least, where)
	return c
}

func achievedShare(r Row) float64 {
	if r.Offered <= 0 {
		return 0
	}
	return r.Achieved / r.Offered
}

func (p pairs) slo(slo time.Duration, bootstrap stats.Bootstrap) Criterion {
	limit := 1.0
	c := Criterion{Name: CriterionSLO, Outcome: Met, Limit: &limit}
	var breaches, unclear []string
	cells := 0
	worst := stats.Interval{Estimate: math.Inf(-1)}
	worstPhase := ""
	for phase, first := range p.phases {
		var ratios, ones []float64
		breached, baseBreached := 0, 0
		greatest := time.Duration(0)
		for i := range p.rounds {
			cells++
			if why := unidentified(p.contender[i][phase], p.base[i][phase], slo); why != "" {
				unclear = append(unclear, fmt.Sprintf("round %d, phase %q: %s", p.rounds[i], first.Phase, why))
			}
			p90 := p.contender[i][phase].P90
			if p90 == nil {
				continue
			}
			ratios, ones = append(ratios, float64(*p90)/float64(slo)), append(ones, 1)
			greatest = max(greatest, *p90)
			if *p90 > slo {
				breached++
			}
			if base := p.base[i][phase].P90; base != nil && *base > slo {
				baseBreached++
			}
		}
		interval := bootstrap.Ratio(ratios, ones)
		if interval.Estimate > worst.Estimate {
			worst, worstPhase = interval, first.Phase
		}
		if breached == 0 {
			continue
		}
		breach := fmt.Sprintf("phase %q: above it in %d of %s, by up to %.0f%%", first.Phase, breached, model.Count(len(p.rounds), "round"), 100*(float64(greatest)/float64(slo)-1))
		outcome := Undecided
		if interval.Low > 1 || 2*breached >= len(p.rounds) {
			outcome = Missed
		}
		if baseBreached > 0 {
			breach += fmt.Sprintf(" (the base in %d)", baseBreached)
			if baseBreached >= breached {
				outcome = Undecided
			}
		}
		breaches = append(breaches, breach)
		c.Outcome = c.Outcome.worst(outcome)
	}
	if !math.IsInf(worst.Estimate, -1) {
		c.Measured = &worst
	}
	if len(unclear) > 0 {
		c.Outcome = c.Outcome.worst(Undecided)
		breaches = append(breaches, "p90 is not certain: "+summarise(unclear))
	}
	if len(breaches) > 0 {
		c.Reason = fmt.Sprintf("p90 is to stay at or below %s: %s", microseconds(slo), strings.Join(breaches, "; "))
		return c
	}
	c.Reason = fmt.Sprintf("p90 at or below %s in all %d phases of all rounds; highest under %q, at %.0f%% of it (interval %.0f to %.0f%%)",
		microseconds(slo), cells, worstPhase, 100*worst.Estimate, 100*worst.Low, 100*worst.High)
	return c
}

// unidentified returns why the contender's p90 without the excluded requests
// may be below that with them for another reason than a busy machine, or
// nothing.
func unidentified(contender, base Row, slo time.Duration) string {
	share, baseShare := excludedShare(contender), excludedShare(base)
	switch {
	case share > MaxExcluded:
		return fmt.Sprintf("%.0f%% of requests overlapped a scheduling gap", 100*share)
	case baseShare > MaxExcluded:
		return fmt.Sprintf("%.0f%% of the base's requests overlapped a scheduling gap", 100*baseShare)
	case share > baseShare+MaxMoreExcluded:
		return fmt.Sprintf("%.1f%% of requests overlapped a scheduling gap, but %.1f%% of the base's", 100*share, 100*baseShare)
	case contender.RawP90 == nil || base.RawP90 == nil:
		return "a raw p90 is not known"
	case *contender.RawP90 > slo && *contender.RawP90 > *base.RawP90:
		return fmt.Sprintf("the raw p90 is %s, and the base's %s", microseconds(*contender.RawP90), microseconds(*base.RawP90))
	}
	return ""
}

func excludedShare(r Row) float64 {
	if r.Requests == 0 {
		return 0
	}
	return float64(r.Excluded) / float64(r.Requests)
}

// ratio returns the contender's CPU per request over the base's, over the
// phases (their geometric mean within a round).
func (p pairs) ratio(phases []int, bootstrap stats.Bootstrap) stats.Interval {
	var treated, control []float64
	for i := range p.rounds {
		var t, b float64
		for _, phase := range phases {
			contender, _ := p.contender[i][phase].cpuPerRequest()
			base, _ := p.base[i][phase].cpuPerRequest()
			t += math.Log(contender)
			b += math.Log(base)
		}
		n := float64(len(phases))
		treated, control = append(treated, math.Exp(t/n)), append(control, math.Exp(b/n))
	}
	return bootstrap.Ratio(treated, control)
}

func (p pairs) high(bootstrap stats.Bootstrap) Criterion {
	limit := HighRatio
	c := Criterion{Name: CriterionHigh, Limit: &limit}
	r := p.ratio(p.of(LoadHigh), bootstrap)
	c.Measured = &r
	c.Outcome, c.Reason = Undecided, "CPU per request cannot be compared"
	if math.IsNaN(r.Estimate) {
		return c
	}
	wanted := fmt.Sprintf("at least %.0f%% below is wanted, and an interval that excludes 0", 100*(1-HighRatio))
	switch {
	case r.Estimate <= HighRatio && r.High < 1:
		c.Outcome = Met
	case r.Estimate > HighRatio && r.Low > HighRatio:
		c.Outcome = Missed
	}
	c.Reason = fmt.Sprintf("CPU per request %s; %s", against(r), wanted)
	return c
}

func (p pairs) low(bootstrap stats.Bootstrap) Criterion {
	limit := LowRatio
	c := Criterion{Name: CriterionLow, Limit: &limit}
	phases := p.of(LoadLow)
	r := p.ratio(phases, bootstrap)
	c.Measured = &r
	c.Outcome, c.Reason = Undecided, "CPU per request cannot be compared"
	if math.IsNaN(r.Estimate) {
		return c
	}
	if r.High <= LowRatio {
		c.Outcome = Met
	}
	if r.Low > LowRatio {
		c.Outcome = Missed
	}
	var each []string
	for _, phase := range phases {
		single := p.ratio([]int{phase}, bootstrap)
		each = append(each, fmt.Sprintf("%q %s", p.phases[phase].Phase, against(single)))
		switch {
		case single.Low > LowRatio:
			c.Outcome = Missed
		case single.Estimate > LowRatio:
			c.Outcome = c.Outcome.worst(Undecided)
		}
	}
	c.Reason = fmt.Sprintf("CPU per request %s (%s); at most %.0f%% above is wanted of the whole interval, and of each phase", against(r), strings.Join(each, ", "), 100*(LowRatio-1))
	return c
}

func (p pairs) changes() Criterion {
	c := Criterion{Name: CriterionChanges, Outcome: Met}
	fewestUp, fewestDown := math.MaxInt, math.MaxInt
	var without []string
	for i, round := range p.rounds {
		up, down := 0, 0
		for _, r := range p.contender[i] {
			up += r.Raised
			down += r.Lowered
		}
		fewestUp, fewestDown = min(fewestUp, up), min(fewestDown, down)
		if up == 0 || down == 0 {
			without = append(without, fmt.Sprintf("round %d: %d up, %d down", round, up, down))
		}
	}
	if len(without) > 0 {
		c.Outcome = Missed
		c.Reason = "at least one change in each direction is wanted in every round: " + summarise(without)
		return c
	}
	c.Reason = fmt.Sprintf("at least %d up and %d down in every round", fewestUp, fewestDown)
	return c
}

// against words a ratio as a difference.
func against(r stats.Interval) string {
	if !r.Bounded() {
		return fmt.Sprintf("%s (no interval)", difference(r.Estimate))
	}
	return fmt.Sprintf("%s (interval %+.1f to %+.1f%%)", difference(r.Estimate), 100*(r.Low-1), 100*(r.High-1))
}

func difference(ratio float64) string {
	if ratio <= 1 {
		return fmt.Sprintf("%.1f%% below base", 100*(1-ratio))
	}
	return fmt.Sprintf("%.1f%% above base", 100*(ratio-1))
}

func microseconds(d time.Duration) string {
	return fmt.Sprintf("%.0f us", float64(d)/float64(time.Microsecond))
}
