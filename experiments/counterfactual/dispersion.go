package counterfactual

import (
	"math"
	"math/rand/v2"

	"autotune/experiments/stats"
	"autotune/model"
)

// mostDispersion is the largest dispersion of two windows' counts that bursts are
// taken to account for; beyond it the load changed.
const mostDispersion = 1000

// dispersions are the squared differences of the packets of neighbouring windows
// of a queue, as ratios of their sums. Their mean is the ratio of the variance of
// such a count to its mean, where the load is steady.
type dispersions struct {
	kept []float64
	seen int
}

// add takes the packets of two windows.
func (d *dispersions) add(a, b float64, random *rand.Rand) {
	ratio := (a - b) * (a - b) / (a + b)
	if !(ratio <= mostDispersion) {
		return
	}
	d.seen++
	if len(d.kept) < mostRows {
		d.kept = append(d.kept, ratio)
	} else if i := random.IntN(d.seen); i < mostRows {
		d.kept[i] = ratio
	}
}

const (
	// leastPairs is how many pairs of windows tell of the dispersion.
	leastPairs = 6
	// chiSquareMedian is the median of a squared standard normal variable, and
	// chiSquareError the standard error of the logarithm of the median of so
	// many, times the square root of the number.
	chiSquareMedian = 0.4549
	chiSquareError  = 2.33
	// leastDeviation is the model's own error.
	leastDeviation = 0.25
)

// dispersion is the variance of the number of requests in a window as a ratio of
// its mean, at most, and the standard error of its logarithm. Changes of the load
// add to it, and bursts that are no longer than windows do not take from it.
type dispersion struct{ atMost, deviation float64 }

// requests returns the dispersion of numbers of requests; nil where too little was
// seen. The median keeps the few changes of a load that is steady otherwise from
// counting.
func (d *dispersions) requests(packetsPerRequest float64) *dispersion {
	if len(d.kept) < leastPairs {
		return nil
	}
	median := stats.Median(d.kept)
	return &dispersion{
		atMost:    max(median/chiSquareMedian/max(packetsPerRequest, 1), 1),
		deviation: max(chiSquareError/math.Sqrt(float64(len(d.kept))), leastDeviation),
	}
}

// residual is the error of what bursts make of counts, in standard errors.
func (d *dispersion) residual(b Bursts) float64 {
	return max(math.Log(b.dispersion()/d.atMost), 0) / d.deviation
}

// mostStretched is how far the lengths of two windows may differ that are
// compared.
const mostStretched = 0.02

// disperse takes a window of the queue, which was not disturbed and had so many
// packets.
func (t *track) disperse(s *model.Sample, packets float64, d *dispersions, random *rand.Rand) {
	if packets > 0 && t.beforeEnd > 0 && math.Abs(float64(s.Span)/float64(t.beforeSpan)-1) <= mostStretched &&
		(s.At-s.Span-t.beforeEnd).Abs() <= edge {
		d.add(t.before, packets, random)
	}
	t.before, t.beforeEnd, t.beforeSpan = packets, s.At, s.Span
}

// workOf returns how many packets a poll had that had any, and how many the poll of
// a packet; NaN where polls were not counted by their packets.
func workOf(polls *[model.WorkBuckets]uint64) (perPoll, aPackets float32) {
	n, packets, squares := 0.0, 0.0, 0.0
	for work, count := range polls {
		if work > 0 {
			n += float64(count)
			packets += float64(work) * float64(count)
			squares += float64(work*work) * float64(count)
		}
	}
	return float32(packets / n), float32(squares / packets)
}
