package demo

import (
	"slices"
	"time"

	"autotune/experiments/servers"
)

// Contender is one way of setting the queue.
type Contender struct {
	Name string `json:"name"`
	// Spec is the policy; empty means to change nothing.
	Spec string `json:"spec"`
}

// Load tells which of the judge's criteria a phase falls under.
type Load string

// The loads.
const (
	LoadLow  Load = "low"
	LoadHigh Load = "high"
)

// Phase is a stretch of constant load.
type Phase struct {
	// Name is unique within a run.
	Name string `json:"name"`
	Load Load   `json:"load"`
	// Rate is offered, in requests per second.
	Rate     float64       `json:"offered_req_per_s"`
	Duration time.Duration `json:"duration_ns"`
}

// DefaultContenders returns the base as found, one fixed setting, and autotune.
func DefaultContenders() []Contender {
	return []Contender{
		{Name: "base"},
		{Name: "fixed 200us", Spec: "static:defer=100,flush=200us"},
		{Name: "autotune", Spec: "aimd"},
	}
}

// SteeredContenders returns the base as found, two settings that defer
// interrupts, two that suspend them, and autotune.
func SteeredContenders() []Contender {
	return []Contender{
		{Name: "base"},
		{Name: "deferral 50us", Spec: "static:case=defer50"},
		{Name: "deferral 100us", Spec: "static:defer=100,flush=100us"},
		{Name: "suspension 20us", Spec: "static:case=suspend20"},
		{Name: "suspension 50us", Spec: "static:case=suspend50"},
		{Name: "autotune", Spec: "aimd"},
	}
}

// DefaultPhases returns low, high and low load of 5,000 and 40,000 requests
// per second, for 5.5 s each.
func DefaultPhases() []Phase {
	return []Phase{
		{Name: "low", Load: LoadLow, Rate: 5000, Duration: 5500 * time.Millisecond},
		{Name: "high", Load: LoadHigh, Rate: 40000, Duration: 5500 * time.Millisecond},
		{Name: "low again", Load: LoadLow, Rate: 5000, Duration: 5500 * time.Millisecond},
	}
}

// programHigh is the high load of a program, as a multiple of its rate: what
// leaves a third of a CPU to it and its NAPI under plain interrupts, as the
// default phases do with the built-in server.
const programHigh = 1.6

// ProgramPhases returns low, high and low load of a fifth and 1.6 times the
// program's rate, for 3 s each: with as many contenders as [SteeredContenders]
// has, five rounds take five minutes.
func ProgramPhases(p servers.Program) []Phase {
	phases := Shortened(DefaultPhases(), 3*time.Second)
	for i := range phases {
		phases[i].Rate = programHigh * p.Rate
		if phases[i].Load == LoadLow {
			phases[i].Rate = p.Rate / 5
		}
	}
	return phases
}

// quickPhase is the length of a phase of a quick look.
const quickPhase = 2 * time.Second

// Shortened returns the phases with another length.
func Shortened(phases []Phase, length time.Duration) []Phase {
	phases = slices.Clone(phases)
	for i := range phases {
		phases[i].Duration = length
	}
	return phases
}
