package compare

import (
	"math"

	"autotune/experiments/stats"
)

// AllScenarios is the name under which all scenarios are taken together: per
// seed, the mean of shares and the geometric mean of ratios.
const AllScenarios = "all"

// Summary is one contender in one scenario, over the seeds. Intervals are
// bootstrapped over seeds at 90%; comparisons are paired by seed.
type Summary struct {
	Scenario  string `json:"scenario"`
	Contender string `json:"contender"`
	Seeds     int    `json:"seeds"`

	ViolatingWindows  stats.Interval `json:"violating_window_share"`
	ViolatingRequests stats.Interval `json:"violating_request_share"`
	ExcessArea        stats.Interval `json:"excess_area_us_s"`
	P50               stats.Interval `json:"p50_us"`
	P99               stats.Interval `json:"p99_us"`
	// Max and WorstWindow are the largest over the seeds.
	Max              *float64       `json:"max_us"`
	WorstWindow      *float64       `json:"worst_window_us"`
	CyclesPerRequest stats.Interval `json:"cycles_per_request"`
	CyclesPerPacket  stats.Interval `json:"cycles_per_packet"`
	VsBestStatic     stats.Interval `json:"cost_vs_best_static"`
	VsOracle         stats.Interval `json:"cost_vs_oracle"`
	// MoreViolating is the share of violating windows less best-static's.
	MoreViolating   stats.Interval `json:"violating_window_share_minus_best_static"`
	SavingOverBase  stats.Interval `json:"saving_share_over_base"`
	SavingOverFixed stats.Interval `json:"saving_share_over_fixed"`
	Regret          stats.Interval `json:"regret_cycles_per_request"`
	LoadChanges     int            `json:"load_changes"`
	Unsettled       int            `json:"unsettled"`
	// Settling is the median over all changes of load, of all seeds.
	Settling    *float64       `json:"settling_windows"`
	Changes     stats.Interval `json:"changes_per_queue"`
	ChangeSteps stats.Interval `json:"change_steps"`
	// RestChanges is null where no window was at rest.
	RestChanges stats.Interval `json:"changes_per_60_rest_windows"`
	Refused     stats.Interval `json:"refused"`
	Exploring   int            `json:"exploring_queues_max"`
}

// bootstrap makes every interval. More resamples move an end by less than a
// hundredth of its width.
func bootstrap() stats.Bootstrap { return stats.Bootstrap{Seed: 1, Resamples: 5000} }

// known returns the values that are numbers.
func known(values []float64) []float64 {
	var out []float64
	for _, v := range values {
		if !math.IsNaN(v) && !math.IsInf(v, 0) {
			out = append(out, v)
		}
	}
	return out
}

func mean(values []float64) stats.Interval { return bootstrap().Mean(known(values)) }

// geometric returns the interval of a ratio.
func geometric(ratios []float64) stats.Interval {
	logs := make([]float64, 0, len(ratios))
	for _, r := range known(ratios) {
		if r > 0 {
			logs = append(logs, math.Log(r))
		}
	}
	return bootstrap().Mean(logs).Map(math.Exp)
}

// summarise condenses one contender's cells of one scenario.
func summarise(all []Metrics, bestStatic map[key]float64) Summary {
	var s Summary
	pick := func(f func(*Metrics) float64) []float64 {
		out := make([]float64, len(all))
		for i := range all {
			out[i] = f(&all[i])
		}
		return out
	}
	largest := func(values []float64) *float64 {
		best := math.NaN()
		for _, v := range known(values) {
			if !(best >= v) {
				best = v
			}
		}
		return number(best)
	}
	s.Scenario, s.Contender, s.Seeds = all[0].Scenario, all[0].Contender, len(all)
	s.ViolatingWindows = mean(pick(func(m *Metrics) float64 { return m.ViolatingWindows }))
	s.ViolatingRequests = mean(pick(func(m *Metrics) float64 { return m.ViolatingRequests }))
	s.ExcessArea = mean(pick(func(m *Metrics) float64 { return m.ExcessArea }))
	s.P50 = mean(pick(func(m *Metrics) float64 { return m.P50 }))
	s.P99 = mean(pick(func(m *Metrics) float64 { return m.P99 }))
	s.Max = largest(pick(func(m *Metrics) float64 { return m.Max }))
	s.WorstWindow = largest(pick(func(m *Metrics) float64 { return m.WorstWindow }))
	s.CyclesPerRequest = mean(pick(func(m *Metrics) float64 { return m.CyclesPerRequest }))
	s.CyclesPerPacket = mean(pick(func(m *Metrics) float64 { return m.CyclesPerPacket }))
	s.VsBestStatic = geometric(pick(func(m *Metrics) float64 { return m.VsBestStatic }))
	s.VsOracle = geometric(pick(func(m *Metrics) float64 { return m.VsOracle }))
	s.MoreViolating = mean(pick(func(m *Metrics) float64 {
		return m.ViolatingWindows - bestStatic[key{m.Scenario, m.Seed, ""}]
	}))
	s.SavingOverBase = mean(pick(func(m *Metrics) float64 { return m.SavingOverBase }))
	s.SavingOverFixed = mean(pick(func(m *Metrics) float64 { return m.SavingOverFixed }))
	s.Regret = mean(pick(func(m *Metrics) float64 { return m.Regret }))
	s.Changes = mean(pick(func(m *Metrics) float64 { return m.Changes }))
	s.ChangeSteps = mean(pick(func(m *Metrics) float64 { return m.ChangeSteps }))
	s.RestChanges = mean(pick(func(m *Metrics) float64 { return m.RestChanges }))
	s.Refused = mean(pick(func(m *Metrics) float64 { return float64(m.Refused) }))
	var settling []float64
	for i := range all {
		s.LoadChanges += all[i].LoadChanges
		s.Unsettled += all[i].Unsettled
		settling = append(settling, all[i].settling...)
		s.Exploring = max(s.Exploring, all[i].Exploring)
	}
	s.Settling = number(stats.Median(settling))
	return s
}

// together takes the same seed of several scenarios together.
func together(of []Metrics) Metrics {
	out := of[0]
	out.Scenario, out.Setting = AllScenarios, nil
	average := func(f func(*Metrics) *float64, log bool) {
		var values []float64
		for i := range of {
			v := *f(&of[i])
			if log {
				v = math.Log(v)
			}
			values = append(values, v)
		}
		sum, n := 0.0, 0
		for _, v := range known(values) {
			sum += v
			n++
		}
		mean := ratio(sum, float64(n))
		if log {
			mean = math.Exp(mean)
		}
		*f(&out) = mean
	}
	for _, f := range []func(*Metrics) *float64{
		func(m *Metrics) *float64 { return &m.ViolatingWindows },
		func(m *Metrics) *float64 { return &m.ViolatingRequests },
		func(m *Metrics) *float64 { return &m.ExcessArea },
		func(m *Metrics) *float64 { return &m.P50 },
		func(m *Metrics) *float64 { return &m.P99 },
		func(m *Metrics) *float64 { return &m.SavingOverBase },
		func(m *Metrics) *float64 { return &m.SavingOverFixed },
		func(m *Metrics) *float64 { return &m.Regret },
		func(m *Metrics) *float64 { return &m.Changes },
		func(m *Metrics) *float64 { return &m.ChangeSteps },
		func(m *Metrics) *float64 { return &m.RestChanges },
	} {
		average(f, false)
	}
	for _, f := range []func(*Metrics) *float64{
		func(m *Metrics) *float64 { return &m.CyclesPerRequest },
		func(m *Metrics) *float64 { return &m.CyclesPerPacket },
		func(m *Metrics) *float64 { return &m.VsBestStatic },
		func(m *Metrics) *float64 { return &m.VsOracle },
		func(m *Metrics) *float64 { return &m.VsBase },
	} {
		average(f, true)
	}
	out.settling = nil
	out.LoadChanges, out.Unsettled, out.Refused, out.Exploring = 0, 0, 0, 0
	out.Windows, out.Requests, out.Dropped, out.RestWindows = 0, 0, 0, 0
	for i := range of {
		m := &of[i]
		out.Windows += m.Windows
		out.Requests += m.Requests
		out.Dropped += m.Dropped
		out.RestWindows += m.RestWindows
		out.LoadChanges += m.LoadChanges
		out.Unsettled += m.Unsettled
		out.settling = append(out.settling, m.settling...)
		out.Refused += m.Refused
		out.Exploring = max(out.Exploring, m.Exploring)
		out.Max, out.WorstWindow = max(out.Max, m.Max), max(out.WorstWindow, m.WorstWindow)
	}
	out.Settling = stats.Median(out.settling)
	return out
}

// number returns nil for what is not a finite number.
func number(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
