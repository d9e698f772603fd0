package sim

import (
	"math"
	"time"

	"autotune/model"
)

// Relative standard deviations that a queue's measurements have between
// windows of 250 ms at 600,000 requests per second with nothing added: of the
// delays' p99, and of CPU time.
const (
	delayError = 0.025
	timeError  = 0.006
	maxNoise   = 100
)

// noise adds to the error of one queue's measurements, window by window.
type noise struct {
	random random
	factor float64 // on the standard deviations above, 0 for nothing
	delays float64 // by what the present window's delays are off
}

// newNoise returns what makes the errors so many times as large: independent
// errors add up as squares.
func newNoise(times float64, seed uint64, lane int) noise {
	n := noise{random: newRandom(seed, 'n', uint64(lane))}
	if times > 1 {
		n.factor = math.Sqrt(times*times - 1)
	}
	return n
}

func (n *noise) draw(deviation float64) float64 {
	return math.Exp(n.factor * deviation * n.random.normal())
}

// blur moves the measured times of a window's counters. What was counted
// stays.
func (n *noise) blur(c *counters) {
	if n.factor == 0 {
		return
	}
	times := n.draw(timeError)
	n.delays = n.draw(delayError)
	for _, h := range []*model.Histogram{&c.ringWait, &c.socketWait, &c.service, &c.delay, &c.client} {
		*h = n.blurred(h)
	}
	for _, t := range []*int64{&c.softirq, &c.softirqIdle, &c.thread, &c.idleExit, &c.hardIRQ, &c.hardIRQIdle, &c.softirqPoll} {
		*t = int64(float64(*t) * times)
	}
}

// blurred returns a histogram of delays as the present window's are measured.
func (n *noise) blurred(h *model.Histogram) model.Histogram {
	if n.factor == 0 {
		return *h
	}
	return stretched(h, n.delays)
}

// stretched returns the histogram of the values times factor, the values of a
// bucket taken to be spread evenly over it.
func stretched(h *model.Histogram, factor float64) model.Histogram {
	var out model.Histogram
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		low, high := model.HistogramBounds(i)
		from, to := float64(low)*factor, float64(high)*factor
		given := uint64(0)
		for j := model.HistogramBucket(time.Duration(from)); given < n; j++ {
			_, top := model.HistogramBounds(j)
			upTo := n
			if float64(top) < to && j < model.HistogramBuckets-1 {
				upTo = uint64(math.Round(float64(n) * (float64(top) - from) / (to - from)))
			}
			if upTo > given {
				out.Counts[j] += upTo - given
				given = upTo
			}
		}
	}
	return out
}
