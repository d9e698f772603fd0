package compare

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"

	"autotune/experiments/stats"
	"autotune/model"
)

// WriteText writes the report as aligned tables for people.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	p := &r.Plan
	fmt.Fprintf(&b, "%s\n", p.describe())
	if p.Seeds < leastSeeds {
		fmt.Fprintf(&b, "With fewer than %d seeds intervals do not have their level: who wins is undecided.\n", leastSeeds)
	}
	for _, scenario := range r.rows() {
		fmt.Fprintf(&b, "\n%s\n", scenario)
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(t, "  contender\tviolating windows %\tkcycles/request\tvs best-static %\tvs oracle %\tsaving of oracle's %\tp50/p99 us\tworst window us\tregret kcycles\tsettling\tchanges\tper 60 at rest\trefused")
		for i := range r.Summaries {
			s := &r.Summaries[i]
			if s.Scenario != scenario {
				continue
			}
			fmt.Fprintln(t, strings.Join([]string{
				"  " + s.Contender,
				interval(s.ViolatingWindows, 100, 1), interval(s.CyclesPerRequest, 1e-3, 2),
				signed(s.VsBestStatic), signed(s.VsOracle), interval(s.SavingOverBase, 100, 0),
				interval1(s.P50, 0) + "/" + interval1(s.P99, 0), optional(s.WorstWindow),
				interval(s.Regret, 1e-3, 2), settlingText(s), interval1(s.Changes, 1), interval1(s.RestChanges, 1), interval1(s.Refused, 1),
			}, "\t"))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	if p.Seeds >= leastSeeds {
		fmt.Fprintf(&b, "\nwins/ties/losses over %s, row against column (first the violating windows beyond 1%%, then CPU; a win only where the 90%% interval excludes zero)\n",
			model.Count(len(r.scenarios), "scenario"))
		r.writeRecord(&b)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) writeRecord(b *strings.Builder) {
	names := r.Plan.Contenders()
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "  ")
	for _, name := range names {
		fmt.Fprint(t, "\t", name)
	}
	fmt.Fprintln(t)
	for _, a := range names {
		fmt.Fprint(t, "  ", a)
		for _, other := range names {
			fmt.Fprint(t, "\t", r.record(a, other))
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // a strings.Builder takes everything
}

// record counts wins, ties and losses over the scenarios.
func (r *Report) record(a, b string) string {
	if a == b {
		return "-"
	}
	count := map[Outcome]int{}
	for _, s := range r.scenarios {
		if c, ok := r.Against(s, a, b); ok {
			count[c.Outcome]++
		}
	}
	if count[Undecided] == len(r.scenarios) {
		return "undecided"
	}
	return fmt.Sprintf("%d/%d/%d", count[Win], count[Tie], count[Loss])
}

// rows returns the names of what summaries are of.
func (r *Report) rows() []string {
	if len(r.scenarios) > 1 {
		return append(append([]string(nil), r.scenarios...), AllScenarios)
	}
	return r.scenarios
}

// describe says in a line what was compared.
func (p *Plan) describe() string {
	guard := "behind the guards"
	if !p.Guarded {
		guard = "without guards"
	}
	preset := p.Preset
	if p.Fitted != nil {
		preset += " fitted to what was recorded"
	}
	out := fmt.Sprintf("preset %s, %s regime, p%g of the %s's delay <= %v in windows of %v, %s, seeds %d to %d, policies %s",
		preset, p.Regime, 100*p.Quantile, p.Latency, p.SLO, p.Interval, model.Count(p.Queues, "queue"),
		p.FirstSeed, p.FirstSeed+uint64(p.Seeds)-1, guard)
	if text := p.Plant.String(); text != "" {
		out += ", plant " + text
	}
	if p.LoadScale != 1 {
		out += fmt.Sprintf(", loads x %g", p.LoadScale)
	}
	if p.Skip > 0 {
		out += fmt.Sprintf(", the first %s not judged", model.Count(p.Skip, "window"))
	}
	return out
}

// interval writes an estimate with its interval.
func interval(i stats.Interval, scale float64, decimals int) string {
	if math.IsNaN(i.Estimate) {
		return "-"
	}
	text := fmt.Sprintf("%.*f", decimals, i.Estimate*scale)
	if i.Bounded() && i.High > i.Low {
		text += fmt.Sprintf(" [%.*f, %.*f]", decimals, i.Low*scale, decimals, i.High*scale)
	}
	return text
}

// interval1 writes an estimate alone.
func interval1(i stats.Interval, decimals int) string {
	if math.IsNaN(i.Estimate) {
		return "-"
	}
	return fmt.Sprintf("%.*f", decimals, i.Estimate)
}

// signed writes a ratio as a difference in per cent.
func signed(i stats.Interval) string {
	if math.IsNaN(i.Estimate) {
		return "-"
	}
	percent := func(v float64) float64 { return 100 * (v - 1) }
	text := fmt.Sprintf("%+.1f", percent(i.Estimate))
	if i.Bounded() && i.High > i.Low {
		text += fmt.Sprintf(" [%+.1f, %+.1f]", percent(i.Low), percent(i.High))
	}
	return text
}

func optional(v *float64) string {
	if v == nil {
		return "-"
	}
	return fmt.Sprintf("%.0f", *v)
}

// settlingText tells the median of windows until settled, and how many changes
// of load it is of; where some were never settled, how many.
func settlingText(s *Summary) string {
	if s.Settling == nil {
		return "-"
	}
	text := fmt.Sprintf("%g of %d", *s.Settling, s.LoadChanges)
	if s.Unsettled > 0 {
		text += fmt.Sprintf(" (%d never)", s.Unsettled)
	}
	return text
}
