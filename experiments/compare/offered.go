package compare

import (
	"time"

	"autotune/model/sim"
)

// offered returns the mean load that the simulated queues are offered in each
// window, in requests per second.
func offered(l sim.Load, queues, windows int, interval time.Duration) []float64 {
	out := make([]float64, windows)
	for q := range queues {
		path := l.Path(sim.QueueShare{Index: q, Fraction: 1 / float64(queues)})
		at := time.Duration(0)
		for w := range out {
			end := time.Duration(w+1) * interval
			requests := 0.0
			for at < end {
				rate, until := path(at)
				until = min(until, end)
				requests += rate * (until - at).Seconds()
				at = until
			}
			out[w] += requests / interval.Seconds()
		}
	}
	return out
}
