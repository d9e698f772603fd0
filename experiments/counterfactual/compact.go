package counterfactual

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"slices"

	"autotune/model"
)

// packed is a histogram without its empty buckets: of each other one, in order,
// the distance to the one before and the count, as varints. A window's delays
// take some hundred bytes, where a [model.Histogram] takes 1.8 KB, and a day at
// ten windows a second has 864,000.
type packed []byte

func pack(h *model.Histogram) packed {
	var buffer [model.HistogramBuckets * (2 + binary.MaxVarintLen64)]byte
	out, last := buffer[:0], 0
	for i, n := range h.Counts {
		if n == 0 {
			continue
		}
		out = binary.AppendUvarint(out, uint64(i-last))
		out = binary.AppendUvarint(out, n)
		last = i
	}
	if len(out) == 0 {
		return nil
	}
	return packed(slices.Clone(out))
}

// unpack sets h to what was packed.
func (p packed) unpack(h *model.Histogram) {
	*h = model.Histogram{}
	at := 0
	for len(p) > 0 {
		step, n := binary.Uvarint(p)
		p = p[n:]
		count, n := binary.Uvarint(p)
		p = p[n:]
		at += int(step)
		h.Counts[at] = count
	}
}

// rates is a packet rate for each window, to within 0.03%, in pieces, so that a
// long recording is not copied each time that it outgrows its place.
type rates struct {
	pieces [][]uint16
	n      int
}

const (
	// ratesPiece is the number of windows in a piece.
	ratesPiece = 1024
	// A rate is kept as its logarithm, in parts of an octave above the least;
	// zero is none.
	ratePart  = 1.0 / 1600
	rateLeast = -10
)

// set notes the rate of a window that is not before the last one; those between
// had none.
func (r *rates) set(window int, rate float64) {
	for r.n <= window {
		if r.n%ratesPiece == 0 {
			r.pieces = append(r.pieces, make([]uint16, ratesPiece))
		}
		r.n++
	}
	kept := uint16(0)
	if rate > 0 {
		kept = uint16(min(max(math.Round((math.Log2(rate)-rateLeast)/ratePart), 1), math.MaxUint16))
	}
	r.pieces[window/ratesPiece][window%ratesPiece] = kept
}

// at returns the rate of a window; zero of one that was not noted.
func (r *rates) at(window int) float64 {
	if window < 0 || window >= r.n {
		return 0
	}
	kept := r.pieces[window/ratesPiece][window%ratesPiece]
	if kept == 0 {
		return 0
	}
	return math.Exp2(float64(kept)*ratePart + rateLeast)
}

// history is what a queue was set to, change by change.
type history []change

type change struct {
	window   int
	settings model.Settings
}

// set notes the settings read back at the end of a window, and reports whether
// they are other ones than at the end of the window before.
func (h *history) set(window int, settings model.Settings) (changed bool) {
	if n := len(*h); n > 0 && (*h)[n-1].settings == settings {
		return false
	}
	*h = append(*h, change{window, settings})
	return len(*h) > 1
}

// at returns the settings in a window: before the first that was noted, those of
// the first.
func (h history) at(window int) model.Settings {
	if len(h) == 0 {
		return model.Settings{}
	}
	i, exact := slices.BinarySearchFunc(h, window, func(c change, w int) int { return c.window - w })
	if !exact && i > 0 {
		i--
	}
	return h[i].settings
}

// mostRows is how many rows a regime keeps: the median of so many lies within
// 6% of a standard deviation of that of all.
const mostRows = 512

// keep takes a row into a uniform sample of all rows (Vitter's algorithm R).
func (g *regime) keep(w row, random *rand.Rand) {
	g.seen++
	if len(g.rows) < mostRows {
		g.rows = append(g.rows, w)
	} else if i := random.IntN(g.seen); i < mostRows {
		g.rows[i] = w
	}
}
