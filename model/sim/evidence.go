package sim

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"

	"autotune/model"
)

// Counters are the mechanism's counters of one measured cell: how often the
// kernel did what, beside what came of it.
type Counters struct {
	Case, Load string
	// IRQs, Polls and EpollCalls are per second. Polls are system wide, so
	// that they include NAPI instances that are not simulated.
	IRQs, Polls, EpollCalls float64
	// EmptyShare is that of polls without a packet.
	EmptyShare                    float64
	PacketsPerPoll, EventsPerCall float64
	SoftirqPercent                float64
}

// CounterColumn is one counter.
type CounterColumn struct {
	Name     string
	Measured func(Counters) float64
	Got      func(*Result) float64
}

// CounterColumns returns the counters that are compared.
func CounterColumns() []CounterColumn {
	return []CounterColumn{
		{irqColumn, func(c Counters) float64 { return c.IRQs }, func(r *Result) float64 { return r.IRQs }},
		{"polls/s", func(c Counters) float64 { return c.Polls }, func(r *Result) float64 { return r.SystemPolls }},
		{"empty share", func(c Counters) float64 { return c.EmptyShare }, func(r *Result) float64 { return r.SystemEmptyShare }},
		{"packets/poll", func(c Counters) float64 { return c.PacketsPerPoll }, func(r *Result) float64 { return r.SystemPacketsPerPoll }},
		{"epoll calls/s", func(c Counters) float64 { return c.EpollCalls }, func(r *Result) float64 { return r.EpollCalls }},
		{"events/call", func(c Counters) float64 { return c.EventsPerCall }, func(r *Result) float64 { return r.EventsPerCall }},
	}
}

// ReadCounters reads the summary of the published raw results.
func ReadCounters(r io.Reader) ([]Counters, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read counters: %w", err)
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("no header: %w", ErrBadTable)
	}
	position := map[string]int{}
	for i, name := range rows[0] {
		position[name] = i
	}
	for _, name := range []string{
		"load_qps", "testcase", "soft_pct_mean", "irqs_per_s", "polls_per_s", "frac_polls_empty",
		"pkts_per_nonempty_poll", "epoll_calls_per_s", "events_per_nonempty_epoll",
	} {
		if _, ok := position[name]; !ok {
			return nil, fmt.Errorf("no column %s: %w", name, ErrBadTable)
		}
	}
	var out []Counters
	for i, row := range rows[1:] {
		var bad error
		number := func(name string) float64 {
			v, err := strconv.ParseFloat(row[position[name]], 64)
			if err != nil && bad == nil {
				bad = fmt.Errorf("line %d, column %s: %w: %w", i+2, name, err, ErrBadTable)
			}
			return v
		}
		c := Counters{
			Case: row[position["testcase"]], Load: "MAX",
			IRQs: number("irqs_per_s"), Polls: number("polls_per_s"), EpollCalls: number("epoll_calls_per_s"),
			EmptyShare: number("frac_polls_empty"), PacketsPerPoll: number("pkts_per_nonempty_poll"),
			EventsPerCall: number("events_per_nonempty_epoll"), SoftirqPercent: number("soft_pct_mean"),
		}
		if load := number("load_qps"); load > 0 {
			c.Load = fmt.Sprintf("%.0fK", load/1e3)
		}
		if bad != nil {
			return nil, bad
		}
		out = append(out, c)
	}
	return out, nil
}

// counterTolerance is the error of a counter that costs the fit one unit.
const counterTolerance = 0.10

// quantities are what a fit compares of one cell's counters. Rates too low to
// matter are left out.
func (c Counters) quantities() []Quantity {
	var out []Quantity
	for _, column := range CounterColumns() {
		want := column.Measured(c)
		if column.Name == irqColumn && want < fewIRQs {
			continue
		}
		out = append(out, Quantity{Name: column.Name, Want: want, Tolerance: counterTolerance, Of: column.Got})
	}
	if c.SoftirqPercent > 3 {
		out = append(out, Quantity{
			Name: "softirq", Want: c.SoftirqPercent, Tolerance: counterTolerance,
			Of: func(r *Result) float64 { return r.SoftirqPercent },
		})
	}
	return out
}

const (
	irqColumn = "irqs/s"
	// fewIRQs per second are what is left of interrupts that a setting keeps
	// masked.
	fewIRQs = 1000
)

// CounterError is how far one counter of simulated cells is from measured
// ones.
type CounterError struct {
	Counter string
	// Median and Max are of the absolute relative errors.
	Median, Max float64
	Worst       string
	Cells       int
}

// CounterErrors compares the cells that both have. IRQ rates below 1000 per
// second are left out: they are what is left of interrupts that the setting
// keeps masked.
func CounterErrors(rows []Row, measured []Counters) []CounterError {
	var out []CounterError
	for _, column := range CounterColumns() {
		e := CounterError{Counter: column.Name}
		var errs []float64
		for _, m := range measured {
			for i := range rows {
				row := &rows[i]
				if row.Case != m.Case || row.Load != m.Load {
					continue
				}
				want := column.Measured(m)
				if column.Name == irqColumn && want < fewIRQs {
					continue
				}
				got := make([]float64, len(row.Runs))
				for j := range row.Runs {
					got[j] = column.Got(&row.Runs[j])
				}
				relative := math.Abs(median(got)/want - 1)
				errs = append(errs, relative)
				if relative >= e.Max {
					e.Max, e.Worst = relative, m.Case+" at "+m.Load
				}
			}
		}
		if len(errs) == 0 {
			continue
		}
		e.Cells = len(errs)
		e.Median = median(errs)
		out = append(out, e)
	}
	return out
}

// ReadHistograms reads a published histogram file, with columns load_qps,
// testcase, value and count. It returns the counts by "case/load".
func ReadHistograms(r io.Reader) (map[string]map[int]float64, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("read histograms: %w", err)
	}
	out := map[string]map[int]float64{}
	for i, row := range rows {
		if len(row) != 4 {
			return nil, fmt.Errorf("line %d has %d columns, want 4: %w", i+1, len(row), ErrBadTable)
		}
		if i == 0 {
			continue
		}
		var numbers [3]float64
		for j, text := range []string{row[0], row[2], row[3]} {
			if numbers[j], err = strconv.ParseFloat(text, 64); err != nil {
				return nil, fmt.Errorf("line %d: %w: %w", i+1, err, ErrBadTable)
			}
		}
		load := "MAX"
		if numbers[0] > 0 {
			load = fmt.Sprintf("%.0fK", numbers[0]/1e3)
		}
		key := row[1] + "/" + load
		if out[key] == nil {
			out[key] = map[int]float64{}
		}
		out[key][int(numbers[1])] += numbers[2]
	}
	return out, nil
}

// HistogramDistance is the total variation distance, 0 to 1, of two
// histograms over the values from first on, values beyond the simulated
// histogram's last taken together.
func HistogramDistance(got *[model.WorkBuckets]uint64, want map[int]float64, first int) float64 {
	var measured [model.WorkBuckets]float64
	for value, n := range want {
		measured[min(max(value, 0), model.WorkBuckets-1)] += n
	}
	gotTotal, wantTotal := 0.0, 0.0
	for i := first; i < model.WorkBuckets; i++ {
		gotTotal += float64(got[i])
		wantTotal += measured[i]
	}
	if gotTotal == 0 || wantTotal == 0 {
		return 1
	}
	distance := 0.0
	for i := first; i < model.WorkBuckets; i++ {
		distance += math.Abs(float64(got[i])/gotTotal-measured[i]/wantTotal) / 2
	}
	return distance
}
