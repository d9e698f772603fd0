package demo

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"autotune/experiments/stats"
	"autotune/model"
)

// WriteTable writes the result for people: latency and cost of every phase and
// contender, then by what means, then the verdict. Values carry their 90%
// interval in brackets.
func WriteTable(w io.Writer, result Result) error {
	var b strings.Builder
	run := result.Run
	rounds := model.Count(run.Rounds, "round")
	if run.Partial != nil {
		fmt.Fprintf(&b, "PARTIAL RESULT: %s.\n\n", *run.Partial)
	}
	calibration := run.Calibration
	fmt.Fprintf(&b, "SLO: p90 <= %s, which is %g times the base's median p90 of %s under high load, fixed before the rounds.\n",
		microseconds(calibration.SLO), calibration.Factor, microseconds(calibration.BaseP90))
	fmt.Fprintf(&b, "%s; [low, high] is the 90%% interval over them. Requests that overlap a scheduling gap are\nexcluded from the percentiles, but not from the raw ones.\n", capital(rounds))
	if run.Server.Installed() && !run.Server.GapsLogged {
		fmt.Fprintf(&b, "%s logs no gaps: those of the client alone exclude requests.\n", capital(run.Server.Name))
	}

	summaries := Summarise(run, result.Rows)
	for _, phase := range run.Phases {
		fmt.Fprintf(&b, "\nphase %q: %s requests/s offered for %v\n", phase.Name, thousands(phase.Rate), phase.Duration)
		cost := [][]string{{"contender", "p50 us", "p90 us", "p99 us", "raw p90/p99", "achieved/s", "CPU us/request", "CPU against base"}}
		means := [][]string{{"contender", "softirq polls/s", "thread polls/s", "application polls/s", "timer fires/s", "mean flush us", "changes up/down", "excluded"}}
		for _, s := range summaries {
			if s.Phase != phase.Name {
				continue
			}
			if s.Rounds == 0 {
				cost = append(cost, []string{s.Contender, "not run"})
				continue
			}
			cost = append(cost, []string{
				s.Contender, latencyCell(s.P50), latencyCell(s.P90), latencyCell(s.P99), estimates(s.RawP90, s.RawP99),
				plainCell(s.Achieved), microsecondCell(s.CPUPerRequest, 1), ratioCell(s.CPURatio),
			})
			means = append(means, []string{
				s.Contender, plainCell(s.SoftirqPolls), plainCell(s.ThreadPolls), plainCell(s.ApplicationPolls),
				plainCell(s.TimerFires), microsecondCell(s.MeanFlush, 0), changesCell(s), fmt.Sprintf("%.1f%%", 100*s.Excluded.Estimate),
			})
		}
		align(&b, cost)
		b.WriteByte('\n')
		align(&b, means)
	}
	b.WriteByte('\n')
	writeVerdict(&b, result)
	writeComparisons(&b, result)
	_, err := io.WriteString(w, b.String())
	return err
}

func writeVerdict(b *strings.Builder, result Result) {
	if result.Verdict == nil {
		b.WriteString("No verdict: a quick look has too few rounds for one.\n")
		return
	}
	v := *result.Verdict
	fmt.Fprintf(b, "Verdict: %s (%s against %s)\n", strings.ToUpper(string(v.Outcome)), v.Contender, v.Base)
	var rows [][]string
	for _, c := range v.Criteria {
		rows = append(rows, []string{"  " + string(c.Outcome), c.Name, c.Reason})
	}
	align(b, rows)
}

// align writes the rows in columns; the last column is not padded.
func align(b *strings.Builder, rows [][]string) {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " "))
		b.WriteByte('\n')
	}
}

// notKnown stands where there is no number.
const notKnown = "-"

func cell(i stats.Interval, format func(float64) string) string {
	if math.IsNaN(i.Estimate) {
		return notKnown
	}
	if !i.Bounded() {
		return format(i.Estimate)
	}
	low, high := format(i.Low), format(i.High)
	estimate := format(i.Estimate)
	if low == high && low == estimate {
		return estimate
	}
	return fmt.Sprintf("%s [%s, %s]", estimate, low, high)
}

func latencyCell(i stats.Interval) string { return microsecondCell(i, 0) }

// estimates writes two latencies in microseconds, without intervals.
func estimates(a, b stats.Interval) string {
	bare := func(i stats.Interval) string {
		return microsecondCell(stats.Interval{Estimate: i.Estimate, Low: math.Inf(-1), High: math.Inf(1)}, 0)
	}
	return bare(a) + "/" + bare(b)
}

func microsecondCell(i stats.Interval, decimals int) string {
	return cell(i, func(ns float64) string {
		return fmt.Sprintf("%.*f", decimals, ns/float64(time.Microsecond))
	})
}

func plainCell(i stats.Interval) string {
	return cell(i, thousands)
}

func ratioCell(i stats.Interval) string {
	if math.IsNaN(i.Estimate) {
		return notKnown
	}
	return cell(i, func(ratio float64) string { return fmt.Sprintf("%+.1f%%", 100*(ratio-1)) })
}

func changesCell(s Summary) string {
	return fmt.Sprintf("%.1f/%.1f", s.Raised.Estimate, s.Lowered.Estimate)
}

// thousands writes a number without decimals, its digits in groups of three.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", math.Abs(v))
	var b strings.Builder
	if v < 0 && digits != "0" {
		b.WriteByte('-')
	}
	for i, d := range digits {
		if i > 0 && (len(digits)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(d)
	}
	return b.String()
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}
