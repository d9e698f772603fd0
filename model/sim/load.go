package sim

import (
	"math"
	"time"
)

// Load is the offered load of the whole host over time.
type Load interface {
	// Path starts a fresh pass over the load, for one queue. Passes are
	// independent and identical: whatever is random in a load (a modulating
	// process, say) follows from its own seed, so that queues see one load.
	Path(QueueShare) Path
}

// QueueShare names one of the host's queues and its share, 0 to 1, of the
// connections.
type QueueShare struct {
	Index    int
	Fraction float64
}

// Path returns the rate in requests per second that one queue is offered at an
// instant, and until when it stays the same (exclusive; later than at). It is
// called with instants that never decrease.
type Path func(at time.Duration) (perSecond float64, until time.Duration)

const forever = time.Duration(math.MaxInt64 / 4)

// Constant offers the same number of requests per second for ever.
type Constant float64

// Path implements [Load].
func (c Constant) Path(q QueueShare) Path {
	return func(time.Duration) (float64, time.Duration) { return float64(c) * q.Fraction, forever }
}

// Steps offers each rate for the same time, in turn, over and over.
type Steps struct {
	// PerSecond are the rates in requests per second; Each is how long a rate
	// lasts.
	PerSecond []float64
	Each      time.Duration
}

// Path implements [Load].
func (s Steps) Path(q QueueShare) Path {
	return func(at time.Duration) (float64, time.Duration) {
		i := int64(at / s.Each)
		return s.PerSecond[i%int64(len(s.PerSecond))] * q.Fraction, time.Duration(i+1) * s.Each
	}
}

// Diurnal offers Mean - Amplitude x cos(2 pi t/Period) requests per second.
type Diurnal struct {
	Mean, Amplitude float64
	Period          time.Duration
}

// diurnalSteps is the number of constant pieces that a period is made of: the
// rate moves by at most 1.3% of the amplitude from one to the next.
const diurnalSteps = 500

// Path implements [Load].
func (d Diurnal) Path(q QueueShare) Path {
	piece := max(d.Period/diurnalSteps, 1)
	return func(at time.Duration) (float64, time.Duration) {
		i := int64(at / piece)
		phase := (float64(i) + 0.5) / diurnalSteps
		return max(0, d.Mean-d.Amplitude*math.Cos(2*math.Pi*phase)) * q.Fraction, time.Duration(i+1) * piece
	}
}

// MMPP is a Markov-modulated Poisson process: the rate is that of a state, and
// states last for an exponential time, after which another state is chosen
// with equal chance.
type MMPP struct {
	PerSecond []float64
	Mean      time.Duration
	Seed      uint64
}

// Path implements [Load].
func (m MMPP) Path(q QueueShare) Path {
	r := newRandom(m.Seed, 'm')
	state, until := 0, time.Duration(0)
	if len(m.PerSecond) > 1 {
		state = int(r.below(uint32(len(m.PerSecond))))
	}
	until = time.Duration(float64(m.Mean)*r.exponential()) + 1
	return func(at time.Duration) (float64, time.Duration) {
		for until <= at {
			if n := len(m.PerSecond); n > 1 {
				state = (state + 1 + int(r.below(uint32(n-1)))) % n
			}
			until += time.Duration(float64(m.Mean)*r.exponential()) + 1
		}
		return m.PerSecond[state] * q.Fraction, until
	}
}

// OnOff offers Low, and High during bursts of exponential length with mean On,
// Off apart on average. Each queue has bursts of its own.
type OnOff struct {
	Low, High float64
	On, Off   time.Duration
	Seed      uint64
}

// Path implements [Load].
func (o OnOff) Path(q QueueShare) Path {
	r := newRandom(o.Seed, 'o', uint64(q.Index))
	on := false
	until := time.Duration(float64(o.Off)*r.exponential()) + 1
	return func(at time.Duration) (float64, time.Duration) {
		for until <= at {
			on = !on
			mean := o.Off
			if on {
				mean = o.On
			}
			until += time.Duration(float64(mean)*r.exponential()) + 1
		}
		if on {
			return o.High * q.Fraction, until
		}
		return o.Low * q.Fraction, until
	}
}

// Flash is a flash crowd: Base, then from Start a linear ramp to Peak during
// Ramp, Peak during Hold, and back to Base at once.
type Flash struct {
	Base, Peak        float64
	Start, Ramp, Hold time.Duration
}

// Path implements [Load].
func (f Flash) Path(q QueueShare) Path {
	const pieces = 100
	return func(at time.Duration) (float64, time.Duration) {
		into := at - f.Start
		switch {
		case into < 0:
			return f.Base * q.Fraction, f.Start
		case into < f.Ramp:
			piece := max(f.Ramp/pieces, 1)
			i := int64(into / piece)
			share := (float64(i) + 0.5) * float64(piece) / float64(f.Ramp)
			return (f.Base + (f.Peak-f.Base)*share) * q.Fraction, min(f.Start+time.Duration(i+1)*piece, f.Start+f.Ramp)
		case into < f.Ramp+f.Hold:
			return f.Peak * q.Fraction, f.Start + f.Ramp + f.Hold
		}
		return f.Base * q.Fraction, forever
	}
}

// ClosedLoop has every connection send its next request as soon as it has the
// response (and the client's think time has passed): the load that the
// published runs call MAX.
type ClosedLoop struct{}

// Path implements [Load]; no request is offered from outside the loop.
func (ClosedLoop) Path(QueueShare) Path {
	return func(time.Duration) (float64, time.Duration) { return 0, forever }
}

// Recorded replays single arrivals at the instants at which they were
// recorded, spread over queues and connections by a hash of their position.
type Recorded struct {
	At []time.Duration // ascending
}

// Path implements [Load]; the arrivals do not come from a rate.
func (Recorded) Path(QueueShare) Path {
	return func(time.Duration) (float64, time.Duration) { return 0, forever }
}
