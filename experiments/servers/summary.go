package servers

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"autotune/experiments/stats"
)

// Compared is one program under one contender: medians, and ratios to the first
// contender and to the one before the last, which is deferral alone.
type Compared struct {
	Program   string `json:"program"`
	Contender string `json:"contender"`
	// The medians over rounds.
	P50Us           float64  `json:"p50_us"`
	P90Us           float64  `json:"p90_us"`
	P99Us           float64  `json:"p99_us"`
	CPUPerRequestUs float64  `json:"cpu_per_request_us"`
	BusyShare       *float64 `json:"application_polled_share"`
	Expired         *uint64  `json:"suspensions_expired"`
	// Untouched and Deferral are the ratios to those; nil for the contender
	// itself.
	Untouched *Ratios `json:"against_untouched"`
	Deferral  *Ratios `json:"against_deferral"`
	// Verdict says what the program gained or lost against being untouched.
	Verdict string `json:"verdict"`
	// AchievedPerS is the median rate of answers.
	AchievedPerS float64 `json:"achieved_per_s"`
	// Advice was given before the first round, about suspension.
	Advice Advice `json:"advice"`
}

// Ratios are geometric means over rounds with intervals.
type Ratios struct {
	CPU stats.Interval `json:"cpu_per_request"`
	P50 stats.Interval `json:"p50"`
	P90 stats.Interval `json:"p90"`
	P99 stats.Interval `json:"p99"`
}

// Summarize condenses rows, in their order of programs and contenders.
func Summarize(rows []Row) []Compared {
	var out []Compared
	byKey := map[[2]string][]Row{}
	for _, r := range rows {
		key := [2]string{r.Program, r.Contender}
		byKey[key] = append(byKey[key], r)
	}
	var programs []string
	for _, r := range rows {
		if !slices.Contains(programs, r.Program) {
			programs = append(programs, r.Program)
		}
	}
	contenders := Contenders()
	for _, program := range programs {
		untouched := byKey[[2]string{program, contenders[0].Name}]
		deferral := byKey[[2]string{program, contenders[1].Name}]
		for i, contender := range contenders {
			mine := byKey[[2]string{program, contender.Name}]
			if len(mine) == 0 {
				continue
			}
			c := Compared{
				Program: program, Contender: contender.Name, Advice: mine[0].Advice,
				AchievedPerS: median(mine, func(r Row) float64 { return r.Achieved }),
				P50Us:        median(mine, func(r Row) float64 { return r.P50Us }), P90Us: median(mine, func(r Row) float64 { return r.P90Us }),
				P99Us: median(mine, func(r Row) float64 { return r.P99Us }), CPUPerRequestUs: median(mine, func(r Row) float64 { return r.CPUPerRequestUs }),
			}
			for _, r := range mine {
				if r.BusyShare == nil {
					continue
				}
				if c.BusyShare == nil {
					c.BusyShare, c.Expired = new(float64), new(uint64)
				}
				*c.BusyShare += *r.BusyShare / float64(len(mine))
				*c.Expired += *r.Expired
			}
			if i > 0 {
				c.Untouched = ratios(mine, untouched)
				c.Verdict = c.Untouched.verdict()
			}
			if i > 1 {
				c.Deferral = ratios(mine, deferral)
			}
			out = append(out, c)
		}
	}
	return out
}

func ratios(a, b []Row) *Ratios {
	ratio := func(of func(Row) float64) stats.Interval {
		var x, y []float64
		for _, r := range a {
			for _, s := range b {
				if r.Round == s.Round {
					x, y = append(x, of(r)), append(y, of(s))
				}
			}
		}
		return stats.Bootstrap{}.Ratio(x, y)
	}
	return &Ratios{
		CPU: ratio(func(r Row) float64 { return r.CPUPerRequestUs }),
		P50: ratio(func(r Row) float64 { return r.P50Us }),
		P90: ratio(func(r Row) float64 { return r.P90Us }),
		P99: ratio(func(r Row) float64 { return r.P99Us }),
	}
}

// verdict names what is beyond noise. p99 of seconds is noise on a machine that
// is shared, so it is shown and not judged.
func (r *Ratios) verdict() string {
	var parts []string
	for _, v := range []struct {
		name  string
		ratio stats.Interval
	}{{"CPU", r.CPU}, {"p50", r.P50}, {"p90", r.P90}} {
		change := 100 * (v.ratio.Estimate - 1)
		switch {
		case !v.ratio.Bounded() || v.ratio.Low <= 1 && v.ratio.High >= 1:
			parts = append(parts, v.name+" undecided")
		case change < 0:
			parts = append(parts, fmt.Sprintf("%s gains %.0f%%", v.name, -change))
		default:
			parts = append(parts, fmt.Sprintf("%s loses %.0f%%", v.name, change))
		}
	}
	return strings.Join(parts, ", ")
}

func median(rows []Row, of func(Row) float64) float64 {
	values := make([]float64, len(rows))
	for i, r := range rows {
		values[i] = of(r)
	}
	return stats.Median(values)
}

// WriteMarkdown writes the comparison as a table.
func WriteMarkdown(w io.Writer, compared []Compared) error {
	const head = "| program | contender | answers/s | CPU/request us | p50 us | p90 us | p99 us | polled by the application | CPU against untouched | p90 against untouched | CPU against deferral | p90 against deferral |\n" +
		"|---|---|---|---|---|---|---|---|---|---|---|---|\n"
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	interval := func(r *Ratios, of func(*Ratios) stats.Interval) string {
		if r == nil {
			return ""
		}
		i := of(r)
		return fmt.Sprintf("%.2f [%.2f, %.2f]", i.Estimate, i.Low, i.High)
	}
	for _, c := range compared {
		busy := ""
		if c.BusyShare != nil {
			busy = fmt.Sprintf("%.0f%%", 100**c.BusyShare)
		}
		cpu, p90 := func(r *Ratios) stats.Interval { return r.CPU }, func(r *Ratios) stats.Interval { return r.P90 }
		if _, err := fmt.Fprintf(w, "| %s | %s | %.0f | %.1f | %.0f | %.0f | %.0f | %s | %s | %s | %s | %s |\n",
			c.Program, c.Contender, c.AchievedPerS, c.CPUPerRequestUs, c.P50Us, c.P90Us, c.P99Us, busy,
			interval(c.Untouched, cpu), interval(c.Untouched, p90), interval(c.Deferral, cpu), interval(c.Deferral, p90)); err != nil {
			return err
		}
	}
	return nil
}
