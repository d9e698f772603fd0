package sim

import (
	"math"
	"slices"
	"time"
)

// Windows offers a rate per window of equal length and, for each queue, that
// queue's own: what a recording of a host knows of its arrivals. The last
// window is followed by nothing.
type Windows struct {
	Each time.Duration
	// PerSecond is indexed by queue, then by window.
	PerSecond [][]float64
	// Singles returns the arrivals of one window of one queue, ascending and
	// since its beginning, where each of them is known; otherwise false, and
	// they are drawn from the rate. It may be called from several goroutines.
	// Nil knows none.
	Singles func(queue, window int) ([]time.Duration, bool) `json:"-"`
}

// Path implements [Load].
func (w Windows) Path(q QueueShare) Path {
	var rates []float64
	if q.Index < len(w.PerSecond) {
		rates = w.PerSecond[q.Index]
	}
	return func(at time.Duration) (float64, time.Duration) {
		i := int64(at / w.Each)
		if i >= int64(len(rates)) {
			return 0, forever
		}
		return rates[i], time.Duration(i+1) * w.Each
	}
}

// Scaled returns the load with all rates multiplied.
func (w Windows) Scaled(by float64) Windows {
	out := Windows{Each: w.Each, PerSecond: make([][]float64, len(w.PerSecond))}
	for i, rates := range w.PerSecond {
		out.PerSecond[i] = make([]float64, len(rates))
		for k := range rates {
			out.PerSecond[i][k] = by * rates[k]
		}
	}
	if w.Singles != nil {
		out.Singles = func(queue, window int) ([]time.Duration, bool) {
			at, known := w.Singles(queue, window)
			if !known {
				return nil, false
			}
			return Repeated(at, by, mix64(uint64(queue))^uint64(window)), true
		}
	}
	return out
}

// Repeated returns ascending arrivals at another rate: each as often as the ratio
// says on average, and a repetition no further away than its neighbours, so that
// bursts stay bursts. Equal seeds give equal arrivals.
func Repeated(at []time.Duration, ratio float64, seed uint64) []time.Duration {
	random := newRandom(seed, 'r')
	out := make([]time.Duration, 0, int(ratio*float64(len(at)))+1)
	for i, t := range at {
		times := int(ratio)
		if random.float() <= ratio-float64(times) {
			times++
		}
		gap := time.Duration(math.MaxInt64)
		if i > 0 {
			gap = t - at[i-1]
		}
		if i+1 < len(at) {
			gap = min(gap, at[i+1]-t)
		}
		if len(at) == 1 {
			gap = 0
		}
		for k := range times {
			again := t
			if k > 0 {
				again += time.Duration(random.float() * float64(gap))
			}
			out = append(out, again)
		}
	}
	slices.Sort(out)
	return out
}
