package demo

import (
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"autotune/experiments/report"
	"autotune/experiments/stats"
)

// WriteReport writes the result as one HTML page that needs nothing else: no
// network, script or font. Equal results give equal bytes.
func WriteReport(w io.Writer, result Result) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"us":     func(d time.Duration) string { return micro(microseconds(d)) },
		"micro":  micro,
		"commas": thousands,
	}).Parse(pageTemplate)
	if err != nil {
		return fmt.Errorf("parse the report's template: %w", err)
	}
	if err := page.Execute(w, newPage(result)); err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return nil
}

// micro writes the unit as a page can.
func micro(s string) string { return strings.ReplaceAll(s, " us", " \u00b5s") }

// page is what the template shows.
type page struct {
	CSS        template.CSS
	Run        RunInfo
	Headline   string
	Verdict    *Verdict
	Forest     template.HTML
	Phases     []phaseTable
	Timelines  []timeline
	Contenders []Contender
	Columns    template.CSS
	Took       string
	Parameters []parameter
	Orders     []string
	// Comparisons are lines of text.
	Comparisons []string
	Level       string
}

type parameter struct{ Name, Value string }

type phaseTable struct {
	Phase Phase
	Rows  []tableRow
}

type tableRow struct {
	Name   string
	Judged bool
	// Cells are latency and cost, Means by what means.
	Cells, Means []tableCell
}

// tableCell is a value and, smaller, its interval or a remark.
type tableCell struct{ Value, Note, More string }

type timeline struct {
	Title string
	Unit  string
	Keys  []key
	Notes string
	// Panels has one for each contender.
	Panels []template.HTML
}

type key struct{ Class, Name string }

func newPage(result Result) page {
	run := result.Run
	p := page{
		CSS:        template.CSS(report.CSS),
		Run:        run,
		Verdict:    result.Verdict,
		Contenders: run.Contenders,
		Columns:    template.CSS(fmt.Sprintf("grid-template-columns: repeat(%d, minmax(300px, 1fr))", max(1, len(run.Contenders)))),
		Took:       run.Took.Round(time.Second).String(),
		Headline:   headline(result),
	}
	for _, name := range sortedKeys(run.Parameters) {
		p.Parameters = append(p.Parameters, parameter{name, run.Parameters[name]})
	}
	for i, order := range run.Orders {
		p.Orders = append(p.Orders, fmt.Sprintf("%d: %s", i+1, strings.Join(order, ", ")))
	}
	for _, c := range Compare(run, result.Rows) {
		p.Comparisons = append(p.Comparisons, c.String())
	}
	summaries := Summarise(run, result.Rows)
	p.Forest = forest(run, summaries, result.Verdict)
	for _, phase := range run.Phases {
		table := phaseTable{Phase: phase}
		for _, s := range summaries {
			if s.Phase == phase.Name {
				table.Rows = append(table.Rows, newTableRow(s, run.Judged))
			}
		}
		p.Phases = append(p.Phases, table)
	}
	p.Timelines = timelines(result)
	return p
}

func headline(result Result) string {
	if result.Verdict == nil {
		return "A quick look: too few rounds for a verdict"
	}
	switch result.Verdict.Outcome {
	case Met:
		return fmt.Sprintf("%s paid: every criterion is met", capital(result.Verdict.Contender))
	case Missed:
		return fmt.Sprintf("%s missed what it was to meet", capital(result.Verdict.Contender))
	default:
		return fmt.Sprintf("Undecided whether %s pays", result.Verdict.Contender)
	}
}

func newTableRow(s Summary, judged string) tableRow {
	row := tableRow{Name: s.Contender, Judged: s.Contender == judged}
	if s.Rounds == 0 {
		row.Cells, row.Means = []tableCell{{Value: "not run"}}, []tableCell{{Value: "not run"}}
		return row
	}
	us := func(decimals int) func(float64) string {
		return func(ns float64) string { return fmt.Sprintf("%.*f", decimals, ns/float64(time.Microsecond)) }
	}
	raw := func(i, raw stats.Interval) tableCell {
		c := htmlCell(i, us(0))
		if !math.IsNaN(raw.Estimate) {
			c.More = "raw " + us(0)(raw.Estimate)
		}
		return c
	}
	signed := func(ratio float64) string {
		return strings.Replace(fmt.Sprintf("%+.1f%%", 100*(ratio-1)), "-", "\u2212", 1)
	}
	share := func(decimals int) func(float64) string {
		return func(v float64) string { return fmt.Sprintf("%.*f%%", decimals, 100*v) }
	}
	row.Cells = []tableCell{
		raw(s.P50, s.RawP50), raw(s.P90, s.RawP90), raw(s.P99, s.RawP99),
		htmlCell(s.Achieved, thousands),
		htmlCell(s.CPUPerRequest, us(1)), htmlCell(s.CPURatio, signed),
		htmlCell(s.Excluded, share(1)), htmlCell(s.OtherCPU, share(0)),
	}
	row.Means = []tableCell{
		htmlCell(s.SoftirqPolls, thousands), htmlCell(s.ThreadPolls, thousands), htmlCell(s.ApplicationPolls, thousands),
		htmlCell(s.TimerFires, thousands), htmlCell(s.MeanFlush, us(0)),
		{Value: fmt.Sprintf("%.1f \u2191 %.1f \u2193", s.Raised.Estimate, s.Lowered.Estimate)},
		htmlCell(s.DelayP90, us(0)), htmlCell(s.TunerCPU, share(1)),
	}
	return row
}

func htmlCell(i stats.Interval, format func(float64) string) tableCell {
	if math.IsNaN(i.Estimate) {
		return tableCell{Value: "\u2013"}
	}
	c := tableCell{Value: format(i.Estimate)}
	if i.Bounded() && (format(i.Low) != c.Value || format(i.High) != c.Value) {
		c.Note = format(i.Low) + " to " + format(i.High)
	}
	return c
}

// forest shows CPU per request against the base, contender by contender. Only
// the judged one has limits, and the colour of its criterion.
func forest(run RunInfo, summaries []Summary, verdict *Verdict) template.HTML {
	f := report.Forest{Label: "CPU per request against the base, in per cent, with 90% intervals"}
	outcome := map[Load]string{}
	if verdict != nil {
		for _, c := range verdict.Criteria {
			switch c.Name {
			case CriterionHigh:
				outcome[LoadHigh] = string(c.Outcome)
			case CriterionLow:
				outcome[LoadLow] = string(c.Outcome)
			}
		}
	}
	for i, contender := range run.Contenders {
		if i == 0 {
			continue
		}
		first := true
		for _, s := range summaries {
			if s.Contender != contender.Name {
				continue
			}
			m := report.Mark{
				Name:     contender.Name + ", " + s.Phase,
				Estimate: 100 * (s.CPURatio.Estimate - 1),
				Low:      100 * (s.CPURatio.Low - 1),
				High:     100 * (s.CPURatio.High - 1),
				Limit:    math.NaN(),
				Rule:     first,
			}
			first = false
			if contender.Name == run.Judged {
				m.Limit = 100 * (LowRatio - 1)
				if s.Load == LoadHigh {
					m.Limit = 100 * (HighRatio - 1)
				}
				m.Class = outcome[s.Load]
			}
			f.Marks = append(f.Marks, m)
		}
	}
	return f.SVG()
}

// timelines draws each quantity for every contender on the same scale.
func timelines(result Result) []timeline {
	run := result.Run
	end := 0.0
	var bands []report.Band
	for i, phase := range run.Phases {
		from := end
		end += phase.Duration.Seconds()
		bands = append(bands, report.Band{From: from, To: end, Label: phase.Name, Shaded: i%2 == 1})
	}
	slo := us(&run.Calibration.SLO)
	quantities := []struct {
		timeline
		lines  []lineOf
		limits []report.Limit
		step   bool
	}{
		{
			timeline: timeline{Title: "Load", Unit: "answered requests per second", Keys: []key{{"load", "median of rounds"}}},
			lines:    []lineOf{{"load", func(w Window) float64 { return w.Achieved }}},
		},
		{
			timeline: timeline{Title: "Latency", Unit: "\u00b5s, at the client, from the intended send", Keys: []key{{"p50", "p50"}, {"p90", "p90"}, {"limit", "SLO for p90"}}},
			lines:    []lineOf{{"p50", func(w Window) float64 { return us(w.P50) }}, {"p90", func(w Window) float64 { return us(w.P90) }}},
			limits:   []report.Limit{{Value: slo, Label: fmt.Sprintf("SLO %.0f \u00b5s", slo)}},
		},
		{
			timeline: timeline{Title: "CPU per request", Unit: "\u00b5s, server process and NAPI thread", Keys: []key{{"cpu", "median of rounds"}}},
			lines: []lineOf{{"cpu", func(w Window) float64 {
				if w.CPUPerRequest == nil {
					return math.NaN()
				}
				return *w.CPUPerRequest / float64(time.Microsecond)
			}}},
		},
		{
			timeline: timeline{Title: "Flush timeout", Unit: "\u00b5s, as read back; 0 means plain interrupts", Keys: []key{{"setting", "median of rounds"}}},
			lines:    []lineOf{{"setting", deferral}},
			step:     true,
		},
	}
	var out []timeline
	for qi, q := range quantities {
		var all []float64
		for _, w := range result.Windows {
			for _, l := range q.lines {
				if v := l.value(w); !math.IsNaN(v) {
					all = append(all, v)
				}
			}
		}
		lines := map[string][]report.Line{}
		// The scale is made for the medians and for most of the rest: a few
		// windows of a busy machine must not flatten all others.
		top := percentile(all, 0.95) * 1.08
		for _, contender := range run.Contenders {
			for _, l := range q.lines {
				rounds, median := roundLines(result, contender.Name, l, q.step)
				lines[contender.Name] = append(append(lines[contender.Name], rounds...), median)
				top = max(top, percentile(median.Y, 0.98)*1.08)
			}
		}
		for _, limit := range q.limits {
			top = max(top, limit.Value*1.12)
		}
		top = report.NiceMax(top)
		above := 0
		for _, v := range all {
			if v > top {
				above++
			}
		}
		if above > 0 {
			q.Notes = fmt.Sprintf("%d of %d points lie above the scale and are marked at its edge", above, len(all))
		}
		for _, contender := range run.Contenders {
			chart := report.Chart{
				Label: fmt.Sprintf("%s of %s over time", q.Title, contender.Name),
				XMax:  end, YMax: top, XUnit: "s", Bands: slices.Clone(bands), Limits: q.limits,
				HideX: qi < len(quantities)-1,
			}
			if qi > 0 {
				for i := range chart.Bands {
					chart.Bands[i].Label = ""
				}
			}
			chart.Lines = lines[contender.Name]
			q.Panels = append(q.Panels, chart.SVG())
		}
		out = append(out, q.timeline)
	}
	return out
}

// lineOf is a quantity of windows and how it is drawn.
type lineOf struct {
	class string
	value func(Window) float64
}

// deferral is the flush timeout where it defers interrupts, and 0 where it
// does not.
func deferral(w Window) float64 {
	if w.Flush == nil || w.Defer == nil {
		return math.NaN()
	}
	if *w.Defer == 0 {
		return 0
	}
	return us(w.Flush)
}

// roundLines returns one faint line for each round, and one of the medians.
func roundLines(result Result, contender string, l lineOf, step bool) (each []report.Line, median report.Line) {
	window := result.Run.Window.Seconds()
	rounds := map[int]*report.Line{}
	bins := map[int][]float64{}
	for _, w := range result.Windows {
		if w.Contender != contender {
			continue
		}
		line := rounds[w.Round]
		if line == nil {
			line = &report.Line{Class: l.class, Faint: true, Step: step}
			rounds[w.Round] = line
		}
		at, value := w.At.Seconds(), l.value(w)
		line.X, line.Y = append(line.X, at), append(line.Y, value)
		if !math.IsNaN(value) && window > 0 {
			bin := int(math.Round(at / window))
			bins[bin] = append(bins[bin], value)
		}
	}
	for _, round := range sortedKeys(rounds) {
		each = append(each, *rounds[round])
	}
	median = report.Line{Class: l.class, Step: step}
	for _, bin := range sortedKeys(bins) {
		median.X = append(median.X, float64(bin)*window)
		median.Y = append(median.Y, percentile(bins[bin], 0.5))
	}
	return each, median
}

// percentile returns the p-quantile of the values, 0 for none; the median of
// an even number is the mean of the middle two.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	at := p * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

func us(d *time.Duration) float64 {
	if d == nil {
		return math.NaN()
	}
	return float64(*d) / float64(time.Microsecond)
}

func sortedKeys[K interface{ ~int | ~string }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Seed returns the seed as text, for the template.
func (p page) Seed() string { return strconv.FormatUint(p.Run.Seed, 10) }
