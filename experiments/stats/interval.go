package stats

import (
	"encoding/json"
	"fmt"
	"math"
)

// Interval is an estimate with a confidence interval around it, in the unit of
// the values that it was made from. Where there were too few values for an
// interval, Low is -Inf and High is +Inf; where there were none, all three are
// NaN.
type Interval struct {
	Estimate, Low, High float64
}

// Bounded reports whether the interval has two finite ends.
func (i Interval) Bounded() bool {
	return !math.IsInf(i.Low, 0) && !math.IsInf(i.High, 0) && !math.IsNaN(i.Low) && !math.IsNaN(i.High)
}

// Map returns the interval with f, which must not decrease, applied to all of
// its values.
func (i Interval) Map(f func(float64) float64) Interval {
	return Interval{Estimate: f(i.Estimate), Low: f(i.Low), High: f(i.High)}
}

type intervalJSON struct {
	Estimate *float64 `json:"estimate"`
	Low      *float64 `json:"low"`
	High     *float64 `json:"high"`
}

// MarshalJSON writes null for a value that is not known or not bounded.
func (i Interval) MarshalJSON() ([]byte, error) {
	return json.Marshal(intervalJSON{finite(i.Estimate), finite(i.Low), finite(i.High)})
}

// UnmarshalJSON reads what [Interval.MarshalJSON] writes.
func (i *Interval) UnmarshalJSON(data []byte) error {
	var in intervalJSON
	if err := json.Unmarshal(data, &in); err != nil {
		return fmt.Errorf("decoding an interval: %w", err)
	}
	*i = Interval{Estimate: math.NaN(), Low: math.NaN(), High: math.NaN()}
	if in.Estimate == nil {
		return nil
	}
	*i = Interval{Estimate: *in.Estimate, Low: math.Inf(-1), High: math.Inf(1)}
	if in.Low != nil {
		i.Low = *in.Low
	}
	if in.High != nil {
		i.High = *in.High
	}
	return nil
}

func finite(v float64) *float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return &v
}
