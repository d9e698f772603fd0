package demo

import (
	"math"
	"slices"
	"time"

	"autotune/experiments/stats"
)

// Summary is one contender in one phase over all rounds. Latencies and CPU
// are geometric means over rounds, rates and counts arithmetic ones, each with
// its 90% interval; where a round's value is not known, that of the rest.
type Summary struct {
	Contender  string `json:"contender"`
	Phase      string `json:"phase"`
	PhaseIndex int    `json:"phase_index"`
	Load       Load   `json:"load"`
	Rounds     int    `json:"rounds"`

	P50      stats.Interval `json:"p50_ns"`
	P90      stats.Interval `json:"p90_ns"`
	P99      stats.Interval `json:"p99_ns"`
	RawP50   stats.Interval `json:"raw_p50_ns"`
	RawP90   stats.Interval `json:"raw_p90_ns"`
	RawP99   stats.Interval `json:"raw_p99_ns"`
	DelayP90 stats.Interval `json:"server_delay_p90_ns"`
	// Excluded is the share of requests that overlapped a scheduling gap.
	Excluded stats.Interval `json:"excluded_share"`

	Offered       stats.Interval `json:"offered_req_per_s"`
	Achieved      stats.Interval `json:"achieved_req_per_s"`
	CPUPerRequest stats.Interval `json:"cpu_per_request_ns"`
	// CPURatio is CPUPerRequest over the base's of the same round; null for
	// the base itself.
	CPURatio stats.Interval `json:"cpu_per_request_ratio"`
	// TunerCPU is the CPU time of the tuning process as a share of one CPU.
	TunerCPU stats.Interval `json:"tuner_cpu_share"`
	// OtherCPU is what else took the server's CPU, as a share of it.
	OtherCPU stats.Interval `json:"other_cpu_share"`

	SoftirqPolls     stats.Interval `json:"softirq_polls_per_s"`
	ThreadPolls      stats.Interval `json:"thread_polls_per_s"`
	ApplicationPolls stats.Interval `json:"application_polls_per_s"`
	TimerFires       stats.Interval `json:"timer_fires_per_s"`
	Raised           stats.Interval `json:"raised_per_round"`
	Lowered          stats.Interval `json:"lowered_per_round"`
	MeanFlush        stats.Interval `json:"mean_gro_flush_timeout_ns"`
}

// Summarise returns the summaries of a run's rows, by phase and then by
// contender, in their order in run.
func Summarise(run RunInfo, rows []Row) []Summary {
	bootstrap := stats.Bootstrap{Seed: run.Seed}
	var out []Summary
	for index, phase := range run.Phases {
		var base []Row
		for i, contender := range run.Contenders {
			var own []Row
			for _, r := range rows {
				if r.Contender == contender.Name && r.Phase == phase.Name {
					own = append(own, r)
				}
			}
			slices.SortFunc(own, func(a, b Row) int { return a.Round - b.Round })
			s := summarise1(own, bootstrap)
			s.Contender, s.Phase, s.PhaseIndex, s.Load = contender.Name, phase.Name, index, phase.Load
			s.CPURatio = unknown()
			if i == 0 {
				base = own
			} else {
				s.CPURatio = cpuRatio(own, base, bootstrap)
			}
			out = append(out, s)
		}
	}
	return out
}

func unknown() stats.Interval { return stats.Bootstrap{}.Mean(nil) }

func summarise1(rows []Row, bootstrap stats.Bootstrap) Summary {
	geometric := func(value func(Row) *time.Duration) stats.Interval {
		var logs []float64
		for _, r := range rows {
			if d := value(r); d != nil && *d > 0 {
				logs = append(logs, math.Log(float64(*d)))
			}
		}
		return bootstrap.Mean(logs).Map(math.Exp)
	}
	arithmetic := func(value func(Row) (float64, bool)) stats.Interval {
		var values []float64
		for _, r := range rows {
			if v, ok := value(r); ok {
				values = append(values, v)
			}
		}
		return bootstrap.Mean(values)
	}
	perSecond := func(value func(Row) *uint64) stats.Interval {
		return arithmetic(func(r Row) (float64, bool) {
			n := value(r)
			if n == nil || r.Observed <= 0 {
				return 0, false
			}
			return float64(*n) / r.Observed.Seconds(), true
		})
	}
	return Summary{
		Rounds:   len(rows),
		P50:      geometric(func(r Row) *time.Duration { return r.P50 }),
		P90:      geometric(func(r Row) *time.Duration { return r.P90 }),
		P99:      geometric(func(r Row) *time.Duration { return r.P99 }),
		RawP50:   geometric(func(r Row) *time.Duration { return r.RawP50 }),
		RawP90:   geometric(func(r Row) *time.Duration { return r.RawP90 }),
		RawP99:   geometric(func(r Row) *time.Duration { return r.RawP99 }),
		DelayP90: geometric(func(r Row) *time.Duration { return r.DelayP90 }),
		Excluded: arithmetic(func(r Row) (float64, bool) {
			return float64(r.Excluded) / float64(r.Requests), r.Requests > 0
		}),
		Offered:  arithmetic(func(r Row) (float64, bool) { return r.Offered, true }),
		Achieved: arithmetic(func(r Row) (float64, bool) { return r.Achieved, true }),
		CPUPerRequest: geometric(func(r Row) *time.Duration {
			v, ok := r.cpuPerRequest()
			if !ok {
				return nil
			}
			d := time.Duration(math.Round(v))
			return &d
		}),
		TunerCPU: arithmetic(func(r Row) (float64, bool) {
			if r.TunerCPU == nil || r.Span <= 0 {
				return 0, false
			}
			return r.TunerCPU.Seconds() / r.Span.Seconds(), true
		}),
		OtherCPU: arithmetic(func(r Row) (float64, bool) {
			if r.OtherCPU == nil {
				return 0, false
			}
			return *r.OtherCPU, true
		}),
		SoftirqPolls:     perSecond(func(r Row) *uint64 { return r.SoftirqPolls }),
		ThreadPolls:      perSecond(func(r Row) *uint64 { return r.ThreadPolls }),
		ApplicationPolls: perSecond(func(r Row) *uint64 { return r.ApplicationPolls }),
		TimerFires:       perSecond(func(r Row) *uint64 { return r.TimerFires }),
		Raised:           arithmetic(func(r Row) (float64, bool) { return float64(r.Raised), true }),
		Lowered:          arithmetic(func(r Row) (float64, bool) { return float64(r.Lowered), true }),
		MeanFlush: arithmetic(func(r Row) (float64, bool) {
			if r.MeanFlush == nil {
				return 0, false
			}
			return float64(*r.MeanFlush), true
		}),
	}
}

// cpuRatio pairs the rows by round.
func cpuRatio(own, base []Row, bootstrap stats.Bootstrap) stats.Interval {
	var treated, control []float64
	for _, r := range own {
		i := slices.IndexFunc(base, func(b Row) bool { return b.Round == r.Round })
		if i < 0 {
			continue
		}
		a, okOwn := r.cpuPerRequest()
		b, okBase := base[i].cpuPerRequest()
		if okOwn && okBase {
			treated, control = append(treated, a), append(control, b)
		}
	}
	return bootstrap.Ratio(treated, control)
}
