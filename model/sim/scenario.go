package sim

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Scenario is a named load over a stretch of simulated time.
type Scenario struct {
	Name string
	Load Load
	// Duration is the simulated time that is measured.
	Duration time.Duration
}

// ErrUnknownScenario is wrapped by [ScenarioByName] for a name it does not
// know.
var ErrUnknownScenario = errors.New("unknown scenario")

// ScenarioNames returns the names that [ScenarioByName] takes.
func ScenarioNames() []string {
	return []string{"constant", "step", "diurnal", "mmpp", "flash", "onoff", "mixed"}
}

// ScenarioByName returns one of the scenarios on which policies are compared,
// stretched to duration. Its random parts follow from seed.
func ScenarioByName(name string, duration time.Duration, seed uint64) (Scenario, error) {
	const k = 1000.0
	if duration <= 0 {
		return Scenario{}, fmt.Errorf("scenario %s: duration %v must be positive", name, duration)
	}
	s := Scenario{Name: name, Duration: duration}
	switch name {
	case "constant":
		s.Load = Constant(600 * k)
	case "step":
		s.Load = Steps{PerSecond: []float64{200 * k, 800 * k, 400 * k, 1000 * k, 300 * k}, Each: duration / 5}
	case "diurnal":
		s.Load = Diurnal{Mean: 550 * k, Amplitude: 400 * k, Period: duration / 2}
	case "mmpp":
		// A state lasts as long as with a switch probability of 0.06 per
		// window of 1/240 of the duration.
		s.Load = MMPP{PerSecond: []float64{250 * k, 850 * k}, Mean: time.Duration(float64(duration) / 240 / 0.06), Seed: seed}
	case "flash":
		s.Load = Flash{Base: 300 * k, Peak: 1000 * k, Start: duration * 2 / 5, Ramp: duration / 10, Hold: duration / 10}
	case "onoff":
		s.Load = OnOff{Low: 300 * k, High: 900 * k, On: 20 * time.Millisecond, Off: 60 * time.Millisecond, Seed: seed}
	case "mixed":
		s.Load = newMixed(duration, seed)
	default:
		return Scenario{}, fmt.Errorf("scenario %q (there are %s): %w", name, strings.Join(ScenarioNames(), ", "), ErrUnknownScenario)
	}
	return s, nil
}

// newMixed is a daily curve (450 - 250 cos) with noise (60) and a burst to
// 950, in thousand requests per second.
func newMixed(duration time.Duration, seed uint64) Mixed {
	const pieces = 240
	return Mixed{
		Day:   Diurnal{Mean: 450e3, Amplitude: 250e3, Period: duration},
		Noise: 60e3, Burst: 950e3, Floor: 10e3,
		Pieces: pieces, Each: max(duration/pieces, 1),
		BurstFrom: pieces * 7 / 10, BurstTo: pieces * 8 / 10,
		Seed: seed,
	}
}

// ErrBadLoad is wrapped by [ParseLoad] for text that is no load.
var ErrBadLoad = errors.New("not a load")

// ParseLoad reads a constant load: a number of requests per second, with K or
// M for thousands or millions, or MAX for the closed loop.
func ParseLoad(text string) (Load, error) {
	if strings.EqualFold(text, "MAX") {
		return ClosedLoop{}, nil
	}
	digits, scale := text, 1.0
	switch {
	case strings.HasSuffix(text, "K"), strings.HasSuffix(text, "k"):
		digits, scale = text[:len(text)-1], 1e3
	case strings.HasSuffix(text, "M"):
		digits, scale = text[:len(text)-1], 1e6
	}
	rate, err := strconv.ParseFloat(digits, 64)
	if err != nil || !(rate > 0) || rate*scale > 1e9 {
		return nil, fmt.Errorf("load %q: want requests per second as 600K, 1.2M or 250000, or MAX: %w", text, ErrBadLoad)
	}
	return Constant(rate * scale), nil
}
