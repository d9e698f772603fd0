package demo

import (
	"fmt"

	"autotune/experiments/stats"
)

// Outcome is how a criterion, or all of them together, came out.
type Outcome string

// The outcomes, from worst to best.
const (
	Missed    Outcome = "missed"
	Undecided Outcome = "undecided"
	Met       Outcome = "met"
)

// rank orders outcomes from worst to best.
func (o Outcome) rank() int {
	switch o {
	case Met:
		return 2
	case Undecided:
		return 1
	default:
		return 0
	}
}

// worst returns the worse of both.
func (o Outcome) worst(other Outcome) Outcome {
	if other.rank() < o.rank() {
		return other
	}
	return o
}

// Verdict is what [Judge] decided about one contender, and why.
type Verdict struct {
	Contender string `json:"contender"`
	Base      string `json:"base"`
	// Outcome is the worst of the criteria's.
	Outcome  Outcome     `json:"outcome"`
	Criteria []Criterion `json:"criteria"`
}

// Criterion is one thing that must hold.
type Criterion struct {
	Name    string  `json:"name"`
	Outcome Outcome `json:"outcome"`
	Reason  string  `json:"reason"`
	// Measured is the quantity with its interval, and Limit what it is held
	// against; both null where the criterion is not about one number.
	Measured *stats.Interval `json:"measured"`
	Limit    *float64        `json:"limit"`
}

func (v *Verdict) add(c Criterion) {
	v.Criteria = append(v.Criteria, c)
	v.Outcome = v.Outcome.worst(c.Outcome)
}

// String returns the outcome in a word or two and what it is about.
func (v Verdict) String() string {
	return fmt.Sprintf("%s: %s against %s", v.Outcome, v.Contender, v.Base)
}
