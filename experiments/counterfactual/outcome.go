package counterfactual

import (
	"math"
	"slices"
	"time"

	"autotune/model"
)

// Outcome is what a stretch of time came to. What is not known is NaN.
type Outcome struct {
	// P50Us, P90Us and P99Us are quantiles of the server-side delay in
	// microseconds.
	P50Us, P90Us, P99Us float64
	// CPUPerRequestUs is the CPU time per request in microseconds, as
	// [model.Costs] accounts it.
	CPUPerRequestUs float64
	// RequestsPerSecond is the rate of requests served.
	RequestsPerSecond float64
	// Violating is the share of windows with delays whose quantile is above the
	// SLO.
	Violating float64
	// Utilisation is the highest utilisation of a CPU in any window, 0 to 1,
	// and Moves the number of settings written; both only of simulated
	// stretches.
	Utilisation float64
	Moves       float64
}

// tally adds windows up to an outcome.
type tally struct {
	objective model.Objective
	delay     model.Histogram
	requests  float64
	costed    float64
	cost      time.Duration
	span      time.Duration
	judged    int
	violating int
	outcomeOf Outcome
}

func newTally(o model.Objective) *tally { return &tally{objective: o} }

func (t *tally) add(delay *model.Histogram, requests float64, cost time.Duration, costed bool, span time.Duration) {
	t.span += span
	t.requests += requests
	if costed && requests > 0 {
		t.cost += cost
		t.costed += requests
	}
	if delay == nil || delay.Count() == 0 {
		return
	}
	t.delay.Merge(delay)
	t.judged++
	if delay.Quantile(t.objective.Quantile) > t.objective.SLO {
		t.violating++
	}
}

func (t *tally) outcome() Outcome {
	out := t.outcomeOf
	us := func(q float64) float64 {
		if t.delay.Count() == 0 {
			return math.NaN()
		}
		return float64(t.delay.Quantile(q)) / 1e3
	}
	out.P50Us, out.P90Us, out.P99Us = us(0.5), us(0.9), us(0.99)
	out.CPUPerRequestUs = float64(t.cost) / 1e3 / t.costed
	out.RequestsPerSecond = t.requests / t.span.Seconds()
	out.Violating = float64(t.violating) / float64(t.judged)
	return out
}

// Band is the middle 90% of a value over draws, and its median.
type Band struct {
	Low    float64 `json:"low"`
	Median float64 `json:"median"`
	High   float64 `json:"high"`
}

// Bands is an outcome with a band for each value.
type Bands struct {
	P50Us             Band `json:"p50_us"`
	P90Us             Band `json:"p90_us"`
	P99Us             Band `json:"p99_us"`
	CPUPerRequestUs   Band `json:"cpu_per_request_us"`
	RequestsPerSecond Band `json:"requests_per_s"`
	Violating         Band `json:"violating_windows_share"`
	Utilisation       Band `json:"highest_utilisation"`
	Moves             Band `json:"moves"`
}

// BandsOf returns the bands of outcomes.
func BandsOf(outcomes []Outcome) Bands {
	band := func(of func(Outcome) float64) Band {
		var values []float64
		for _, o := range outcomes {
			if v := of(o); !math.IsNaN(v) && !math.IsInf(v, 0) {
				values = append(values, v)
			}
		}
		if len(values) == 0 {
			return Band{Low: math.NaN(), Median: math.NaN(), High: math.NaN()}
		}
		slices.Sort(values)
		at := func(q float64) float64 {
			x := q * float64(len(values)-1)
			i := int(x)
			if i+1 >= len(values) {
				return values[len(values)-1]
			}
			return values[i] + (x-float64(i))*(values[i+1]-values[i])
		}
		return Band{Low: at(0.05), Median: at(0.5), High: at(0.95)}
	}
	return Bands{
		P50Us:             band(func(o Outcome) float64 { return o.P50Us }),
		P90Us:             band(func(o Outcome) float64 { return o.P90Us }),
		P99Us:             band(func(o Outcome) float64 { return o.P99Us }),
		CPUPerRequestUs:   band(func(o Outcome) float64 { return o.CPUPerRequestUs }),
		RequestsPerSecond: band(func(o Outcome) float64 { return o.RequestsPerSecond }),
		Violating:         band(func(o Outcome) float64 { return o.Violating }),
		Utilisation:       band(func(o Outcome) float64 { return o.Utilisation }),
		Moves:             band(func(o Outcome) float64 { return o.Moves }),
	}
}
