package compare

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"

	"autotune/experiments/stats"
)

// column is one value of a cell, in CSV and JSON alike.
type column struct {
	name  string
	value func(*Metrics) any
}

func columns() []column {
	f := func(name string, of func(*Metrics) float64) column {
		return column{name, func(m *Metrics) any { return of(m) }}
	}
	return []column{
		{"scenario", func(m *Metrics) any { return m.Scenario }},
		{"seed", func(m *Metrics) any { return m.Seed }},
		{"contender", func(m *Metrics) any { return m.Contender }},
		{"setting", func(m *Metrics) any {
			if m.Setting == nil {
				return nil
			}
			return m.Setting.String()
		}},
		{"windows", func(m *Metrics) any { return m.Windows }},
		{"requests", func(m *Metrics) any { return m.Requests }},
		f("violating_window_share", func(m *Metrics) float64 { return m.ViolatingWindows }),
		f("violating_request_share", func(m *Metrics) float64 { return m.ViolatingRequests }),
		f("excess_area_us_s", func(m *Metrics) float64 { return m.ExcessArea }),
		f("p50_us", func(m *Metrics) float64 { return m.P50 }),
		f("p99_us", func(m *Metrics) float64 { return m.P99 }),
		f("max_us", func(m *Metrics) float64 { return m.Max }),
		f("worst_window_us", func(m *Metrics) float64 { return m.WorstWindow }),
		f("cycles_per_request", func(m *Metrics) float64 { return m.CyclesPerRequest }),
		f("cycles_per_packet", func(m *Metrics) float64 { return m.CyclesPerPacket }),
		f("cost_vs_best_static", func(m *Metrics) float64 { return m.VsBestStatic }),
		f("cost_vs_oracle", func(m *Metrics) float64 { return m.VsOracle }),
		f("cost_vs_base", func(m *Metrics) float64 { return m.VsBase }),
		f("saving_share_over_base", func(m *Metrics) float64 { return m.SavingOverBase }),
		f("saving_share_over_fixed", func(m *Metrics) float64 { return m.SavingOverFixed }),
		f("regret_cycles_per_request", func(m *Metrics) float64 { return m.Regret }),
		{"load_changes", func(m *Metrics) any { return m.LoadChanges }},
		{"unsettled", func(m *Metrics) any { return m.Unsettled }},
		f("settling_windows", func(m *Metrics) float64 { return m.Settling }),
		f("changes_per_queue", func(m *Metrics) float64 { return m.Changes }),
		f("change_steps", func(m *Metrics) float64 { return m.ChangeSteps }),
		{"rest_windows", func(m *Metrics) any { return m.RestWindows }},
		f("changes_per_60_rest_windows", func(m *Metrics) float64 { return m.RestChanges }),
		{"refused", func(m *Metrics) any { return m.Refused }},
		{"exploring_queues_max", func(m *Metrics) any { return m.Exploring }},
		{"dropped_packets", func(m *Metrics) any { return m.Dropped }},
	}
}

// rounded keeps six significant digits: more would be noise, and harder to
// read.
func rounded(v float64) float64 {
	out, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 6, 64), 64)
	if err != nil {
		return v
	}
	return out
}

// WriteCellsCSV writes a row per cell. What is not known is empty.
func (r *Report) WriteCellsCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	var row []string
	for _, column := range columns() {
		row = append(row, column.name)
	}
	if err := c.Write(row); err != nil {
		return err
	}
	for i := range r.Metrics {
		row = row[:0]
		for _, column := range columns() {
			text := ""
			switch v := column.value(&r.Metrics[i]).(type) {
			case nil:
			case float64:
				if !math.IsNaN(v) && !math.IsInf(v, 0) {
					text = strconv.FormatFloat(rounded(v), 'g', -1, 64)
				}
			default:
				text = fmt.Sprint(v)
			}
			row = append(row, text)
		}
		if err := c.Write(row); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}

// WriteCells writes a line of JSON per cell.
func (r *Report) WriteCells(w io.Writer) error {
	for i := range r.Metrics {
		line := []byte(`{"kind":"cell"`)
		for _, column := range columns() {
			v := column.value(&r.Metrics[i])
			if number, ok := v.(float64); ok {
				if v = nil; !math.IsNaN(number) && !math.IsInf(number, 0) {
					v = rounded(number)
				}
			}
			text, err := json.Marshal(v)
			if err != nil {
				return fmt.Errorf("encode a cell: %w", err)
			}
			line = append(line, `,"`+column.name+`":`...)
			line = append(line, text...)
		}
		if _, err := w.Write(append(line, "}\n"...)); err != nil {
			return err
		}
	}
	return nil
}

// WriteSummary writes a line of JSON per summary and per comparison.
func (r *Report) WriteSummary(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	for _, s := range r.Summaries {
		if err := e.Encode(struct {
			Kind string `json:"kind"`
			Summary
			Refusals map[string]int `json:"refusals_by_guard"`
		}{"summary", s, r.refusals(s.Scenario, s.Contender)}); err != nil {
			return fmt.Errorf("encode a summary: %w", err)
		}
	}
	for _, c := range r.Comparisons {
		if err := e.Encode(struct {
			Kind string `json:"kind"`
			Comparison
		}{"comparison", c}); err != nil {
			return fmt.Errorf("encode a comparison: %w", err)
		}
	}
	return nil
}

// summaryFields are the intervals of a summary, in the order of CSV.
func summaryFields() []struct {
	name string
	of   func(*Summary) stats.Interval
} {
	return []struct {
		name string
		of   func(*Summary) stats.Interval
	}{
		{"violating_window_share", func(s *Summary) stats.Interval { return s.ViolatingWindows }},
		{"violating_window_share_minus_best_static", func(s *Summary) stats.Interval { return s.MoreViolating }},
		{"violating_request_share", func(s *Summary) stats.Interval { return s.ViolatingRequests }},
		{"excess_area_us_s", func(s *Summary) stats.Interval { return s.ExcessArea }},
		{"cycles_per_request", func(s *Summary) stats.Interval { return s.CyclesPerRequest }},
		{"cycles_per_packet", func(s *Summary) stats.Interval { return s.CyclesPerPacket }},
		{"cost_vs_best_static", func(s *Summary) stats.Interval { return s.VsBestStatic }},
		{"cost_vs_oracle", func(s *Summary) stats.Interval { return s.VsOracle }},
		{"saving_share_over_base", func(s *Summary) stats.Interval { return s.SavingOverBase }},
		{"saving_share_over_fixed", func(s *Summary) stats.Interval { return s.SavingOverFixed }},
		{"p50_us", func(s *Summary) stats.Interval { return s.P50 }},
		{"p99_us", func(s *Summary) stats.Interval { return s.P99 }},
		{"regret_cycles_per_request", func(s *Summary) stats.Interval { return s.Regret }},
		{"changes_per_queue", func(s *Summary) stats.Interval { return s.Changes }},
		{"change_steps", func(s *Summary) stats.Interval { return s.ChangeSteps }},
		{"changes_per_60_rest_windows", func(s *Summary) stats.Interval { return s.RestChanges }},
		{"refused", func(s *Summary) stats.Interval { return s.Refused }},
	}
}

// summaryHeader names what [Summary.row] returns.
func summaryHeader() []string {
	row := []string{"scenario", "contender", "seeds"}
	for _, f := range summaryFields() {
		row = append(row, f.name, f.name+"_low", f.name+"_high")
	}
	return append(row, "max_us", "worst_window_us", "settling_windows", "load_changes", "unsettled", "exploring_queues_max")
}

// row returns a summary as CSV, each interval as three columns.
func (s *Summary) row() []string {
	text := func(v float64) string {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return ""
		}
		return strconv.FormatFloat(rounded(v), 'g', -1, 64)
	}
	optional := func(p *float64) string {
		if p == nil {
			return ""
		}
		return text(*p)
	}
	row := []string{s.Scenario, s.Contender, strconv.Itoa(s.Seeds)}
	for _, f := range summaryFields() {
		v := f.of(s)
		row = append(row, text(v.Estimate), text(v.Low), text(v.High))
	}
	return append(row, optional(s.Max), optional(s.WorstWindow), optional(s.Settling),
		strconv.Itoa(s.LoadChanges), strconv.Itoa(s.Unsettled), strconv.Itoa(s.Exploring))
}

// WriteSummaryCSV writes a row per summary.
func (r *Report) WriteSummaryCSV(w io.Writer) error {
	c := csv.NewWriter(w)
	if err := c.Write(summaryHeader()); err != nil {
		return err
	}
	for i := range r.Summaries {
		if err := c.Write(r.Summaries[i].row()); err != nil {
			return err
		}
	}
	c.Flush()
	return c.Error()
}
