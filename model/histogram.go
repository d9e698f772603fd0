package model

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"time"
)

// The bucket rule of every duration histogram, in Go and in BPF (bpf/hist.h):
// durations are counted in units of 128 ns; units 0 to 7 have a bucket each,
// and above that every power of two is split into 8 buckets. A bucket's
// middle is therefore at most 6.25% from any value in it, for values of 1 us
// and more; below 1 us the error is at most 64 ns.
const (
	histogramUnitShift = 7
	histogramSubBits   = 3

	// HistogramBuckets is the number of buckets. The last one also takes
	// everything of 137 s and more.
	HistogramBuckets = 224
)

// Histogram counts durations in buckets with a bounded relative error. Equal
// bucket bounds everywhere make histograms mergeable: a quantile over several
// windows or queues is that of the merged histogram, never an average of
// quantiles. The zero value is empty and ready to use.
type Histogram struct {
	Counts [HistogramBuckets]uint64
}

// HistogramBucket returns the index of the bucket that d falls into. Negative
// durations fall into the first.
func HistogramBucket(d time.Duration) int {
	if d < 0 {
		return 0
	}
	units := uint64(d) >> histogramUnitShift
	if units < 1<<histogramSubBits {
		return int(units)
	}
	exp := bits.Len64(units) - 1
	index := (exp-histogramSubBits+1)<<histogramSubBits + int(units>>(exp-histogramSubBits)&(1<<histogramSubBits-1))
	return min(index, HistogramBuckets-1)
}

// HistogramBounds returns the half-open interval [low, high) of bucket i.
func HistogramBounds(i int) (low, high time.Duration) {
	if i < 1<<histogramSubBits {
		return time.Duration(i) << histogramUnitShift, time.Duration(i+1) << histogramUnitShift
	}
	exp := i>>histogramSubBits - 1
	sub := i&(1<<histogramSubBits-1) + 1<<histogramSubBits
	return time.Duration(sub) << (exp + histogramUnitShift), time.Duration(sub+1) << (exp + histogramUnitShift)
}

// Add counts d n times.
func (h *Histogram) Add(d time.Duration, n uint64) { h.Counts[HistogramBucket(d)] += n }

// Merge adds the counts of other.
func (h *Histogram) Merge(other *Histogram) {
	if other == nil {
		return
	}
	for i, n := range other.Counts {
		h.Counts[i] += n
	}
}

// Count returns the number of values counted.
func (h *Histogram) Count() uint64 {
	if h == nil {
		return 0
	}
	var total uint64
	for _, n := range h.Counts {
		total += n
	}
	return total
}

// Quantile returns the q-quantile, 0 <= q <= 1: the value below which a share
// q of the counted values lies, interpolated linearly inside its bucket. It
// returns 0 when nothing was counted.
func (h *Histogram) Quantile(q float64) time.Duration {
	total := h.Count()
	if total == 0 {
		return 0
	}
	rank := q * float64(total)
	var below float64
	last := 0
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		last = i
		if below+float64(n) >= rank {
			low, high := HistogramBounds(i)
			share := (rank - below) / float64(n)
			return low + time.Duration(share*float64(high-low))
		}
		below += float64(n)
	}
	_, high := HistogramBounds(last)
	return high
}

// Above returns the number of values counted in buckets that lie wholly above
// d.
func (h *Histogram) Above(d time.Duration) uint64 {
	if h == nil {
		return 0
	}
	var n uint64
	for i := HistogramBucket(d) + 1; i < HistogramBuckets; i++ {
		n += h.Counts[i]
	}
	return n
}

// MarshalJSON writes the occupied buckets as [index, count] pairs.
func (h Histogram) MarshalJSON() ([]byte, error) {
	pairs := make([][2]uint64, 0, 16)
	for i, n := range h.Counts {
		if n != 0 {
			pairs = append(pairs, [2]uint64{uint64(i), n})
		}
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON reads what [Histogram.MarshalJSON] writes, and refuses a
// bucket that does not exist.
func (h *Histogram) UnmarshalJSON(data []byte) error {
	var pairs [][2]uint64
	if err := json.Unmarshal(data, &pairs); err != nil {
		return err
	}
	*h = Histogram{}
	for _, p := range pairs {
		if p[0] >= HistogramBuckets {
			return fmt.Errorf("histogram bucket %d does not exist (there are %d)", p[0], HistogramBuckets)
		}
		h.Counts[p[0]] += p[1]
	}
	return nil
}
