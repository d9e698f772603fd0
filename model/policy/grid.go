package policy

import (
	"math"
	"slices"
	"time"
)

const (
	// gridStart is the smallest flush timeout that policies try.
	gridStart = 8 * time.Microsecond
	// gridStep is the factor from one flush timeout of a grid to the next:
	// less is below what cost shows above its noise.
	gridStep = 1.25
	// gridMost is the largest flush timeout unless a spec says otherwise.
	gridMost = 200 * time.Microsecond
)

// grid returns the flush timeouts from 8 us to limit in steps of 25%, with
// limit as the last.
func grid(limit time.Duration) []time.Duration { return gridOf(limit, gridStep) }

// gridOf is a grid with another step.
func gridOf(limit time.Duration, step float64) []time.Duration {
	var out []time.Duration
	for g := float64(gridStart); g < float64(limit)*0.99; g *= step {
		out = append(out, time.Duration(g).Round(100*time.Nanosecond))
	}
	return append(out, limit)
}

// choices returns what a policy on a grid can choose from: plain interrupts,
// which are a flush timeout of zero, and the grid.
func choices(limit time.Duration) []time.Duration {
	return append([]time.Duration{0}, grid(limit)...)
}

// nearest returns the position of the choice that is nearest to a flush timeout
// by ratio. Zero, plain interrupts, is nearest only to itself.
func nearest(choices []time.Duration, flush time.Duration) int {
	if i := slices.Index(choices, flush); i >= 0 {
		return i
	}
	best, distance := 0, math.Inf(1)
	for i, c := range choices {
		if c <= 0 || flush <= 0 {
			continue
		}
		if d := math.Abs(math.Log(float64(c) / float64(flush))); d < distance {
			best, distance = i, d
		}
	}
	return best
}
