package sim

import "time"

// arrivals draws one queue's arrivals from its share of a load.
type arrivals struct {
	closed   bool
	path     Path
	fraction float64
	rate     float64
	until    int64
	// recorded, when not nil, takes the place of path; this queue takes the
	// positions whose hash lies in [low, high).
	recorded  []time.Duration
	position  int
	low, high float64
	// singles, when not nil, has the arrivals of windows that last each; those
	// of the present one are in instants, from position on, if single is set.
	singles  func(window int) ([]time.Duration, bool)
	each     int64
	single   bool
	instants []time.Duration
	begin    int64
}

func newArrivals(load Load, q QueueShare, before float64) arrivals {
	a := arrivals{fraction: q.Fraction, low: before, high: before + q.Fraction}
	switch l := load.(type) {
	case ClosedLoop:
		a.closed = true
	case Recorded:
		a.recorded = l.At
	case Windows:
		if l.Singles != nil {
			a.each = int64(l.Each)
			a.singles = func(window int) ([]time.Duration, bool) { return l.Singles(q.Index, window) }
		}
	}
	a.path = load.Path(q)
	return a
}

// next returns the first arrival after from, and the host's offered load then
// in million requests per second.
func (a *arrivals) next(from int64, r *random) (int64, float64) {
	if a.recorded != nil {
		return a.nextRecorded(), 0
	}
	for {
		if from >= a.until {
			rate, until := a.path(time.Duration(from))
			a.rate, a.until = rate, int64(until)
			a.openWindow(from)
		}
		if a.single {
			if a.position < len(a.instants) {
				at := a.begin + int64(a.instants[a.position])
				a.position++
				return max(at, from), a.rate / a.fraction / 1e6
			}
		} else if a.rate > 0 {
			at := from + int64(r.exponential()/a.rate*1e9+0.5)
			if at < a.until {
				return at, a.rate / a.fraction / 1e6
			}
		}
		if a.until >= int64(forever) {
			return never, 0
		}
		// The process has no memory: go on from the change of rate.
		from = a.until
	}
}

// openWindow finds the single arrivals of the window that begins at from.
func (a *arrivals) openWindow(from int64) {
	if a.singles == nil || a.until >= int64(forever) {
		a.single = false
		return
	}
	window := from / a.each
	a.instants, a.single = a.singles(int(window))
	a.begin, a.position = window*a.each, 0
}

func (a *arrivals) nextRecorded() int64 {
	for a.position < len(a.recorded) {
		i := a.position
		a.position++
		if u := float64(mix64(uint64(i))>>11) * 0x1p-53; u >= a.low && u < a.high {
			return int64(a.recorded[i])
		}
	}
	return never
}

// connection chooses the connection of an open-loop arrival. Independent
// Poisson processes of equal rate, merged, are one process whose arrivals
// belong to each with equal chance.
func (a *arrivals) connection(r *random, n int) int32 { return int32(r.below(uint32(n))) }
