package phc

import (
	"math"
	"time"
)

// Reading is one comparison of a device's clock with the host's: when the former
// showed PHC (nanoseconds modulo 2^64), the latter (CLOCK_MONOTONIC) showed
// Monotonic, Error more or less.
type Reading struct {
	PHC       uint64
	Monotonic time.Duration
	Error     time.Duration
}

// maxReadings bounds what the rate is worked out from: over more than some
// seconds, temperature and clock servos change it.
const maxReadings = 8

// maxRateChange is by how much the rate may change between readings. More is
// taken for a step of the clock; so is a servo that is still far from its goal,
// whose readings tell nothing of the next window either.
const maxRateChange = 20e-6

// maxRate bounds the rate itself. Kernel clocks are steered by at most 500 ppm
// and crystals are better than that.
const maxRate = 1000e-6

// maxError bounds the error of a clock: with more, as of one behind a slow bus,
// it says less of waits than polls do.
const maxError = 250 * time.Microsecond

// Tracker follows a device's clock from reading to reading. The zero value has
// none.
type Tracker struct {
	// readings are consecutive, the newest last, without a step in between.
	readings []Reading
}

// Add takes a reading, which must be newer than those before. After a step of
// either clock it forgets those.
func (t *Tracker) Add(r Reading) {
	if n := len(t.readings); n > 0 && !t.follows(r) {
		t.readings = t.readings[:0]
	}
	if len(t.readings) == maxReadings {
		t.readings = append(t.readings[:0], t.readings[1:]...)
	}
	t.readings = append(t.readings, r)
}

// follows reports whether the reading goes on where those before left off.
func (t *Tracker) follows(r Reading) bool {
	last := t.readings[len(t.readings)-1]
	host, device := r.Monotonic-last.Monotonic, time.Duration(r.PHC-last.PHC)
	if host <= 0 || device <= 0 {
		return false
	}
	slack := float64(r.Error + last.Error)
	if len(t.readings) == 1 {
		return math.Abs(float64(host-device)) <= slack+maxRate*float64(device)
	}
	// How wrong it may be is allowed for below.
	clock, _ := t.Clock(0)
	expected, ok := clock.At(r.PHC)
	return ok && math.Abs(float64(r.Monotonic-expected)) <= slack+(maxRateChange+t.rateError())*float64(device)
}

// Clock returns the clock to use until validity after the newest reading; false
// until two readings agree, and while it may be wrong by more than a quarter of a
// millisecond by then.
func (t *Tracker) Clock(validity time.Duration) (Clock, bool) {
	if len(t.readings) < 2 {
		return Clock{}, false
	}
	first, last := t.readings[0], t.readings[len(t.readings)-1]
	host, device := last.Monotonic-first.Monotonic, time.Duration(last.PHC-first.PHC)
	clock := Clock{
		PHC:       last.PHC,
		Monotonic: last.Monotonic,
		Rate:      int64(math.Round(float64(host-device) / float64(device) * (1 << 32))),
		Error:     last.Error + time.Duration(math.Ceil(t.rateError()*float64(validity))),
	}
	return clock, clock.Error <= maxError
}

// rateError is how far the rate may be wrong by the errors of the readings that
// it is made of.
func (t *Tracker) rateError() float64 {
	first, last := t.readings[0], t.readings[len(t.readings)-1]
	return float64(first.Error+last.Error) / float64(last.Monotonic-first.Monotonic)
}
