package phc

import "time"

// Clock tells the host's time by a device's clock.
type Clock struct {
	// PHC is a time of the device's clock in nanoseconds, modulo 2^64, and
	// Monotonic what CLOCK_MONOTONIC showed at that moment.
	PHC       uint64
	Monotonic time.Duration
	// Rate is by how much CLOCK_MONOTONIC is faster, in 2^-32.
	Rate int64
	// Error is how far At may be wrong at the end of the time for which the
	// clock was made.
	Error time.Duration
}

// MaxAge is how far from PHC a stamp may be: bpf/stamps.h refuses others.
const MaxAge = time.Duration(1) << 34

// At returns what CLOCK_MONOTONIC showed when the device's clock showed stamp;
// false for one that is further than [MaxAge] from PHC. It computes what
// stamped_wait in bpf/stamps.h does.
func (c Clock) At(stamp uint64) (time.Duration, bool) {
	since := int64(stamp - c.PHC)
	if since > int64(MaxAge) || since < -int64(MaxAge) {
		return 0, false
	}
	return c.Monotonic + time.Duration(since+(since*c.Rate)>>32), true
}
