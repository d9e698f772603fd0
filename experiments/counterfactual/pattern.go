package counterfactual

import (
	"encoding/binary"
	"math"
	"slices"
	"time"

	"autotune/model/sim"
)

// pattern is when the requests of one window came to one queue, one by one.
type pattern struct {
	// window is its index in the recording, and ordinal that among the windows
	// with single events.
	window, ordinal int
	// regime is nil where the window is of none.
	regime *regime
	span   time.Duration
	n      int
	// gaps are varints: nanoseconds from the arrival before, or from the
	// window's beginning.
	gaps []byte
}

// newPattern returns the pattern of arrivals, which ascend from the beginning of
// some window of the length span.
func newPattern(span time.Duration, at []time.Duration) pattern {
	var gaps []byte
	before := time.Duration(0)
	for _, t := range at {
		gaps = binary.AppendUvarint(gaps, uint64(t-before))
		before = t
	}
	return pattern{span: span, n: len(at), gaps: slices.Clip(gaps)}
}

// times returns the arrivals, in a window that lasts each.
func (p *pattern) times(each time.Duration) []time.Duration {
	out := make([]time.Duration, 0, p.n)
	scale := float64(each) / float64(p.span)
	at := uint64(0)
	for rest := p.gaps; len(rest) > 0; {
		gap, n := binary.Uvarint(rest)
		rest = rest[n:]
		at += gap
		out = append(out, min(time.Duration(float64(at)*scale), each-1))
	}
	return out
}

// perSecond is the rate of the arrivals.
func (p *pattern) perSecond() float64 { return float64(p.n) / p.span.Seconds() }

// mostAlike is the factor between the rates of two windows up to which one is
// taken to be like the other.
const mostAlike = 2

// like reports whether a window with so many requests per second is like that of
// the pattern.
func (p *pattern) like(rate float64) bool {
	return math.Abs(math.Log(rate/p.perSecond())) <= math.Log(mostAlike)
}

// mostLooked is how many patterns before and after a window are looked at for one
// that is alike.
const mostLooked = 32

// patternOf returns the index of the pattern of a window or, where it has none,
// that of the nearest one with about the same rate; negative where there is none
// either.
func (t *track) patternOf(window int, rate float64) int {
	i, own := slices.BinarySearchFunc(t.patterns, window, func(p pattern, w int) int { return p.window - w })
	if own {
		return i
	}
	best := -1
	for k := max(0, i-mostLooked); k < min(len(t.patterns), i+mostLooked); k++ {
		p := &t.patterns[k]
		if p.n == 0 || !p.like(rate) {
			continue
		}
		if best < 0 || abs(p.window-window) < abs(t.patterns[best].window-window) {
			best = k
		}
	}
	return best
}

func abs(n int) int { return max(n, -n) }

// singles returns the arrivals of a window that lasts each and had the given rate
// of requests, and whether they are known: as they were observed, or as those of
// a window that is alike were. Equal windows have equal arrivals.
func (t *track) singles(window int, rate float64, each time.Duration) ([]time.Duration, bool) {
	i := t.patternOf(window, rate)
	if i < 0 {
		return nil, false
	}
	p := &t.patterns[i]
	at := p.times(each)
	if p.window == window {
		return at, true
	}
	return sim.Repeated(at, rate/p.perSecond(), uint64(window)), true
}

// Known counts windows of queues that had packets by what is known of when
// requests came in them.
type Known struct {
	// Single: each was observed.
	Single int
	// Alike: as in another window of the queue in which each was observed, at
	// the rate of this one.
	Alike int
	// Random: only how many, so that they come at random.
	Random int
}

// Known tells how the arrivals of the given queues, indexes into Queues, in
// stretches [from, to) are known.
func (r *Recording) Known(queues []int, blocks [][2]int) Known {
	r.settle()
	var out Known
	per := r.PacketsPerRequest()
	for _, i := range queues {
		t := &r.tracks[i]
		for _, b := range blocks {
			for window := b[0]; window < b[1]; window++ {
				rate := t.rates.at(window) / per
				if !(rate > 0) {
					continue
				}
				switch k := t.patternOf(window, rate); {
				case k < 0:
					out.Random++
				case t.patterns[k].window == window:
					out.Single++
				default:
					out.Alike++
				}
			}
		}
	}
	return out
}

const (
	// mostArrivals is how many arrivals are kept, in two or three bytes each: as
	// many as are simulated twice over. Beyond it every other window is
	// forgotten.
	mostArrivals = 4 << 20
	// patternCost is how many arrivals a pattern takes the room of.
	patternCost = 40
)

// keepPattern keeps what a queue's requests did in a window.
func (r *Recording) keepPattern(track int, p pattern) {
	t := &r.tracks[track]
	t.patterns = append(t.patterns, p)
	r.arrivals += p.n + patternCost
	for r.arrivals > mostArrivals {
		r.stride = 2 * max(r.stride, 1)
		r.arrivals = 0
		for i := range r.tracks {
			t := &r.tracks[i]
			t.patterns = slices.DeleteFunc(t.patterns, func(p pattern) bool { return p.ordinal%r.stride != 0 })
			for k := range t.patterns {
				r.arrivals += t.patterns[k].n + patternCost
			}
		}
		if r.stride > 1<<20 {
			return
		}
	}
}
