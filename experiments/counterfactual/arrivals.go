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
// of [Recording.Load]. In windows whose single arrivals are not known they come as
// b says.
func (r *Recording) Arrivals(queues []int, blocks [][2]int, b Bursts) sim.Windows {
	out := sim.Windows{Each: r.Each(), PerSecond: make([][]float64, len(queues))}
	var windows []int
	for _, block := range blocks {
		stretch := r.Load(block[0], block[1])
		for i, q := range queues {
			out.PerSecond[i] = append(out.PerSecond[i], stretch.PerSecond[q]...)
		}
		for window := block[0]; window < block[1]; window++ {
			windows = append(windows, window)
		}
	}
	if r.arrivals > 0 || !b.AtRandom() {
		out.Singles = func(queue, window int) ([]time.Duration, bool) {
			if queue >= len(queues) || window >= len(windows) {
				return nil, false
			}
			return r.singles(queues[queue], windows[window], out.PerSecond[queue][window], b)
		}
	}
	return out
}

// singles returns the arrivals of a window of a queue that had so many requests per
// second, and false where they come at random: those that are known, or else as b
// says. So many come then as were counted.
func (r *Recording) singles(queue, window int, rate float64, b Bursts) ([]time.Duration, bool) {
	each := r.Each()
	if at, known := r.tracks[queue].singles(window, rate, each); known || b.AtRandom() {
		return at, known
	}
	seed := uint64(window)<<16 ^ uint64(queue)
	return b.arrivals(whole(rate*each.Seconds(), seed), each, seed), true
}
