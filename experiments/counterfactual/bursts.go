package counterfactual

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"autotune/model/sim"
)

// Bursts is how requests come to a queue: some by themselves, at random, and the
// others in bursts of a geometric number with exponential gaps. One burst begins at
// random after the one before. The zero value is requests that come at random.
type Bursts struct {
	// Requests is how many a burst has on the average; at 1 or less they come at
	// random.
	Requests float64
	// PerSecond is the rate within a burst.
	PerSecond float64
	// Alone is the share of the requests that come by themselves; at 1 or more
	// all do.
	Alone float64
}

// AtRandom reports whether each request comes by itself (Poisson).
func (b Bursts) AtRandom() bool { return !(b.Requests > 1 && b.PerSecond > 0 && b.Alone < 1) }

// dispersion is the variance of the number of requests in a long window, as a
// ratio of its mean.
func (b Bursts) dispersion() float64 {
	alone := min(b.Alone, 1)
	return alone + (1-alone)*max(2*b.Requests-1, 1)
}

// arrivals returns n arrivals in a window that lasts span, ascending. Equal seeds
// give arrivals that change little where b does.
func (b Bursts) arrivals(n int, span time.Duration, seed uint64) []time.Duration {
	random := func(of uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, of)) }
	alone, starts, sizes, gaps := random(1), random(2), random(3), random(4)
	at := make([]float64, 0, n) // as parts of span
	for range int(math.Round(float64(n) * min(b.Alone, 1))) {
		at = append(at, alone.Float64())
	}
	further, gap := 1-1/max(b.Requests, 1), 1/(b.PerSecond*span.Seconds())
	// Bursts, one right after the other, from where each has its first arrival.
	var bursts []int
	var begin []float64
	taken := 0.0
	for len(at) < n {
		bursts, begin = append(bursts, len(at)), append(begin, starts.Float64())
		// The whole part of an exponential number is geometric.
		size := 1
		if further > 0 {
			size -= int(sizes.ExpFloat64() / math.Log(further))
		}
		for k := range min(size, n-len(at)) {
			if k > 0 {
				taken += gaps.ExpFloat64() * gap
			}
			at = append(at, taken)
		}
	}
	// What of the window they do not take lies between them, at random.
	shrink := min(1, mostTaken/max(taken, gap))
	slices.Sort(begin)
	bursts = append(bursts, n)
	for k, before := range begin {
		for i := bursts[k]; i < bursts[k+1]; i++ {
			at[i] = at[i]*shrink + before*(1-taken*shrink)
		}
	}
	out := make([]time.Duration, n)
	for i, t := range at {
		out[i] = min(time.Duration(t*float64(span)), span-1)
	}
	slices.Sort(out)
	return out
}

// mostTaken is how much of a window bursts take at most: so many at such a rate
// that they do not fit are faster.
const mostTaken = 0.9

// load is a queue that so many requests come to per second, for span.
func (b Bursts) load(perSecond float64, span time.Duration, seed uint64) sim.Load {
	at := b.arrivals(int(perSecond*span.Seconds()), span, seed)
	return sim.Windows{
		Each: span, PerSecond: [][]float64{{perSecond}},
		Singles: func(_, window int) ([]time.Duration, bool) { return at, window == 0 },
	}
}

// whole returns a number of requests whose mean over windows is the given one.
func whole(n float64, seed uint64) int {
	floor := math.Floor(n)
	if rand.New(rand.NewPCG(seed, 0x0f)).Float64() < n-floor {
		floor++
	}
	return int(floor)
}
