package sim

import "time"

// Mixed is a daily curve with noise and a burst: constant pieces, each at the
// curve's rate when it begins plus normal noise, never below Floor, and at
// Burst during the burst.
type Mixed struct {
	Day Diurnal
	// Noise is the standard deviation of a piece's rate, Burst the rate of the
	// burst and Floor the least rate of a piece, in requests per second.
	Noise, Burst, Floor float64
	// Pieces is the number of pieces, each Each long; after them they come
	// again.
	Pieces int
	Each   time.Duration
	// The burst is from piece BurstFrom on, and before BurstTo.
	BurstFrom, BurstTo int
	Seed               uint64
}

// Path implements [Load].
func (m Mixed) Path(q QueueShare) Path { return m.steps().Path(q) }

func (m Mixed) steps() Steps {
	r := newRandom(m.Seed, 'x')
	s := Steps{Each: max(m.Each, 1)}
	day := m.Day.Path(QueueShare{Fraction: 1})
	for i := range m.Pieces {
		// The sum of 12 uniform numbers has variance 1 and mean 6.
		noise := -6.0
		for range 12 {
			noise += r.float()
		}
		rate, _ := day(time.Duration(i) * s.Each)
		rate += m.Noise * noise
		if i >= m.BurstFrom && i < m.BurstTo {
			rate = m.Burst
		}
		s.PerSecond = append(s.PerSecond, max(rate, m.Floor))
	}
	return s
}
