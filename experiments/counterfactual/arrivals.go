package counterfactual

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"autotune/model/sim"
)

// CheckLoad returns an error that wraps [ErrNothingMeasured] where the recording
// does not tell what load there was.
func (r *Recording) CheckLoad() error {
	r.settle()
	switch {
	case len(r.windows) == 0:
		return fmt.Errorf("%w anything: it has no samples", ErrNothingMeasured)
	case r.polled == 0:
		return fmt.Errorf("%w what load there was: no packet was polled", ErrNothingMeasured)
	case r.requests == 0 || r.packets == 0:
		return fmt.Errorf("%w how long requests took: no delay was observed; record with the socket tracepoints", ErrNothingMeasured)
	}
	return nil
}

// Busiest returns the indexes, into Queues and in their order, of the n queues
// that the most packets came to; of all where there are no more.
func (r *Recording) Busiest(n int) []int {
	order := make([]int, len(r.Queues))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(r.tracks[b].polled, r.tracks[a].polled) })
	order = order[:min(n, len(order))]
	slices.Sort(order)
	return order
}

// Arrivals returns the arrivals of the given queues, indexes into Queues, in
// stretches [from, to) of the recording, one after the other. Their unit is that
// of [Recording.Load].
func (r *Recording) Arrivals(queues []int, blocks [][2]int) sim.Windows {
	out := sim.Windows{Each: r.Each(), PerSecond: make([][]float64, len(queues))}
	var windows []int
	for _, b := range blocks {
		stretch := r.Load(b[0], b[1])
		for i, q := range queues {
			out.PerSecond[i] = append(out.PerSecond[i], stretch.PerSecond[q]...)
		}
		for window := b[0]; window < b[1]; window++ {
			windows = append(windows, window)
		}
	}
	if r.arrivals > 0 {
		out.Singles = func(queue, window int) ([]time.Duration, bool) {
			if queue >= len(queues) || window >= len(windows) {
				return nil, false
			}
			return r.tracks[queues[queue]].singles(windows[window], out.PerSecond[queue][window], out.Each)
		}
	}
	return out
}
