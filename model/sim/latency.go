package sim

import (
	"math/bits"
	"time"

	"autotune/model"
)

// latencies is a histogram of client latencies, finer than the samples': a
// bucket is at most 1.6% wide from 1 us on.
type latencies struct {
	counts [latencyBuckets]uint32
	over   [latencyBuckets]uint32 // carries of counts, so that runs may be long
	sum    float64
	n      uint64
}

const (
	latencySub     = 6 // 64 buckets per power of two
	latencyBuckets = 64 * 36
)

func latencyBucket(ns int64) int {
	v := uint64(max(ns, 0))
	if v < 1<<latencySub {
		return int(v)
	}
	exp := bits.Len64(v) - 1 - latencySub
	return min((exp+1)<<latencySub+int(v>>exp)&(1<<latencySub-1), latencyBuckets-1)
}

func latencyBounds(i int) (low, high float64) {
	if i < 1<<latencySub {
		return float64(i), float64(i + 1)
	}
	exp := i>>latencySub - 1
	sub := i&(1<<latencySub-1) + 1<<latencySub
	return float64(uint64(sub) << exp), float64(uint64(sub+1) << exp)
}

func (h *latencies) add(ns int64) {
	i := latencyBucket(ns)
	h.counts[i]++
	if h.counts[i] == 0 {
		h.over[i]++
	}
	h.sum += float64(ns)
	h.n++
}

func (h *latencies) count(i int) uint64 { return uint64(h.over[i])<<32 | uint64(h.counts[i]) }

func (h *latencies) merge(o *latencies) {
	for i := range h.counts {
		if n := h.count(i) + o.count(i); n > 0 {
			h.counts[i], h.over[i] = uint32(n), uint32(n>>32)
		}
	}
	h.sum += o.sum
	h.n += o.n
}

// mean returns the mean in nanoseconds, 0 when nothing was added.
func (h *latencies) mean() float64 {
	if h.n == 0 {
		return 0
	}
	return h.sum / float64(h.n)
}

// quantile returns the q-quantile in nanoseconds, interpolated in its bucket.
func (h *latencies) quantile(q float64) float64 {
	rank := q * float64(h.n)
	below := 0.0
	for i := range h.counts {
		n := float64(h.count(i))
		if n > 0 && below+n >= rank {
			low, high := latencyBounds(i)
			return low + (rank-below)/n*(high-low)
		}
		below += n
	}
	return 0
}

// into adds the counts to a histogram of the samples' kind.
func (h *latencies) into(out *model.Histogram) {
	for i := range h.counts {
		if n := h.count(i); n > 0 {
			low, high := latencyBounds(i)
			out.Add(time.Duration((low+high)/2), n)
		}
	}
}
