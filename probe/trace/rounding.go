package trace

import (
	"context"
	"fmt"
	"math/bits"
	"slices"

	"autotune/model"
)

// Detail says how exactly a recording has what its samples' histograms count.
type Detail string

// The details. With [DetailExact] samples are what the probes counted, with
// [DetailRounded] what [Round] makes of it.
const (
	DetailExact   Detail = ""
	DetailRounded Detail = "rounded"
)

func (d Detail) String() string {
	if d == DetailExact {
		return "exact"
	}
	return string(d)
}

// MarshalText implements [encoding.TextMarshaler].
func (d Detail) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (d *Detail) UnmarshalText(text []byte) error {
	switch string(text) {
	case "exact":
		*d = DetailExact
	case "rounded":
		*d = DetailRounded
	default:
		return fmt.Errorf("histograms are exact or rounded, not %q", text)
	}
	return nil
}

// A rounded count is below exactCounts, or one of 1<<levelBits that are spread
// evenly over each power of two: its levels, numbered without gaps.
const (
	exactBits   = 3
	exactCounts = 1 << exactBits
	levelBits   = 2

	// lastLevel is that of the largest rounded count of 64 bits.
	lastLevel = exactCounts + (64-exactBits)<<levelBits - 1
)

// levelOf returns the level of the largest rounded count that is not above n.
func levelOf(n uint64) uint64 {
	if n < exactCounts {
		return n
	}
	length := bits.Len64(n)
	return exactCounts + uint64(length-1-exactBits)<<levelBits + n>>(length-1-levelBits)&(1<<levelBits-1)
}

// levelCount returns the rounded count of a level, at most lastLevel.
func levelCount(level uint64) uint64 {
	if level < exactCounts {
		return level
	}
	level -= exactCounts
	return (1<<levelBits + level&(1<<levelBits-1)) << (exactBits - levelBits + level>>levelBits)
}

// nearestLevel returns the rounded count that is nearest to n.
func nearestLevel(n uint64) uint64 {
	level := levelOf(n)
	low := levelCount(level)
	if level == lastLevel {
		return low
	}
	if high := levelCount(level + 1); high-n < n-low {
		return high
	}
	return low
}

// roundCounts rounds all counts but the first that is not 0, and leaves their sum
// as it is: what rounding adds to a bucket is taken from the one before it, so
// that the number above any bucket is right to half a step of that bucket.
func roundCounts(counts []uint64) {
	first := slices.IndexFunc(counts, func(n uint64) bool { return n != 0 })
	if first < 0 {
		return
	}
	// before is what the buckets before i count, and carry what is still to be
	// counted in them on top of that; their sum stays at 0 or above.
	var before uint64
	for _, n := range counts {
		before += n
	}
	carry := int64(0)
	for i := len(counts) - 1; i > first; i-- {
		before -= counts[i]
		n := int64(counts[i]) + carry
		if n <= 0 {
			counts[i], carry = 0, n
			continue
		}
		rounded := int64(nearestLevel(uint64(n)))
		if int64(before)+n-rounded < 0 {
			rounded = int64(levelCount(levelOf(uint64(n))))
		}
		counts[i], carry = uint64(rounded), n-rounded
	}
	counts[first] = uint64(int64(counts[first]) + carry)
}

// roundable reports whether counts are so few that their sum is a number with a
// sign.
func roundable(counts []uint64) bool {
	var sum uint64
	for _, n := range counts {
		if n >= 1<<62 {
			return false
		}
		if sum += n; sum >= 1<<62 {
			return false
		}
	}
	return true
}

// rounded reports whether counts are as roundCounts leaves them.
func rounded(counts []uint64) bool {
	begun := false
	for _, n := range counts {
		if n >= exactCounts && begun && n&(1<<(bits.Len64(n)-1-levelBits)-1) != 0 {
			return false
		}
		begun = begun || n != 0
	}
	return true
}

// pairsOf appends the sums of each two buckets to into, and reports whether both
// have half of it, an odd one more being in the first.
func pairsOf(into, counts []uint64) (_ []uint64, even bool) {
	if len(counts)%2 != 0 {
		return into, false
	}
	for i := 0; i < len(counts); i += 2 {
		a, b := counts[i], counts[i+1]
		if a != b && a != b+1 || a >= 1<<62 {
			return into, false
		}
		into = append(into, a+b)
	}
	return into, true
}

// splitPairs is the reverse of pairsOf.
func splitPairs(counts, pairs []uint64) {
	for i, n := range pairs {
		counts[2*i], counts[2*i+1] = n-n/2, n/2
	}
}

func roundPairs(counts []uint64) {
	var pairs [model.HistogramBuckets / 2]uint64
	for i := range pairs {
		pairs[i] = counts[2*i] + counts[2*i+1]
	}
	roundCounts(pairs[:])
	splitPairs(counts, pairs[:])
}

// Round returns s with the histograms of its queues rounded, which take less
// than half the room then; s itself is not changed.
//
// In the histograms of delays and of work, counts have three significant bits: from 8
// on they become one of four within each power of two (8, 10, 12, 14, 16, 20, ...),
// and what that adds to a bucket is taken from the one below. So a histogram counts as
// many as before; and how many lie above a bucket's lower bound is right to an eighth
// of what the bucket counts (a quarter among the lowest, which can only be rounded
// down), and exactly where buckets count less than 8. Where neighbouring buckets count
// alike a quantile moves by an eighth of its bucket's width at most, 1.6% of its value.
// In the histograms of ring wait, socket wait, service and suspensions each two buckets
// share what they counted, besides, so that a bucket is in effect a quarter of its value
// wide. The latency of the host, and all that is no histogram, stay as they are.
func Round(s model.Sample) model.Sample {
	s.Queues = slices.Clone(s.Queues)
	for i := range s.Queues {
		q := &s.Queues[i]
		if roundable(q.Work[:]) {
			roundCounts(q.Work[:])
		}
		q.Delay = roundedHistogram(q.Delay, roundCounts)
		q.RingWait = roundedHistogram(q.RingWait, roundPairs)
		q.SocketWait = roundedHistogram(q.SocketWait, roundPairs)
		q.Service = roundedHistogram(q.Service, roundPairs)
		if q.Suspension != nil {
			suspension := *q.Suspension
			suspension.Length = *roundedHistogram(&suspension.Length, roundPairs)
			q.Suspension = &suspension
		}
	}
	return s
}

func roundedHistogram(h *model.Histogram, round func([]uint64)) *model.Histogram {
	if h == nil {
		return nil
	}
	out := *h
	if roundable(out.Counts[:]) {
		round(out.Counts[:])
	}
	return &out
}

// Rounding passes on the samples of a source, rounded.
type Rounding struct{ source Source }

// NewRounding returns the samples of source as [Round] makes them. Between a
// source and what both decides and records, decisions rest on what is recorded.
func NewRounding(source Source) *Rounding { return &Rounding{source} }

// Next returns source's next sample, rounded, and its error.
func (r *Rounding) Next(ctx context.Context) (model.Sample, error) {
	sample, err := r.source.Next(ctx)
	return Round(sample), err
}
