//go:build linux

package workload

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// check refuses rates that cannot be offered.
func (p Phase) check() error {
	switch {
	case !(p.Rate >= 0 && p.Rate <= 1e7) || p.Settle < 0:
		return fmt.Errorf("phase %q: rate %v is not in 0 to 10,000,000 requests per second, or its settle time %v is negative",
			p.Name, p.Rate, p.Settle)
	case p.Burst > 1 && p.Rate > 0 && !(p.pause() > 0):
		return fmt.Errorf("phase %q: bursts at %v requests per second make no %v on the average", p.Name, p.BurstRate, p.Rate)
	}
	return nil
}

// pause is the mean time between two bursts in seconds, which with the mean gap
// within a burst makes the phase's rate.
func (p Phase) pause() float64 {
	return p.Burst/p.Rate - (p.Burst-1)/p.BurstRate
}

// gap draws the time from one request to the next: exponential, and with bursts
// the pause after one in Burst requests and the gap within a burst after the
// others, so that their number is geometric.
func (p Phase) gap(random *rand.Rand) time.Duration {
	mean := 1 / p.Rate
	if p.Burst > 1 {
		mean = 1 / p.BurstRate
		if random.Float64() < 1/p.Burst {
			mean = p.pause()
		}
	}
	return time.Duration(random.ExpFloat64() * mean * float64(time.Second))
}
