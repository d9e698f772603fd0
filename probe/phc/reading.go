package phc

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"
)

// ErrClockSet says that a clock was set, or this process did not run, while the
// clocks were compared. The next comparison may do.
var ErrClockSet = errors.New("a clock was set while it was read")

// comparison is one reading of the device's clock between two of CLOCK_REALTIME.
type comparison struct {
	before, after time.Duration
	phc           uint64
}

// bestExtended returns the comparison that took the least of those that
// PTP_SYS_OFFSET_EXTENDED made (struct ptp_sys_offset_extended in
// include/uapi/linux/ptp_clock.h).
func bestExtended(o *unix.PtpSysOffsetExtended) (comparison, error) {
	best, found := comparison{}, false
	for _, ts := range o.Ts[:min(int(o.Samples), len(o.Ts))] {
		before, ok1 := nanoseconds(ts[0])
		device, ok2 := nanoseconds(ts[1])
		after, ok3 := nanoseconds(ts[2])
		c := comparison{time.Duration(before), time.Duration(after), device}
		if !ok1 || !ok2 || !ok3 || c.after < c.before {
			continue
		}
		if !found || c.after-c.before < best.after-best.before {
			best, found = c, true
		}
	}
	if !found {
		return comparison{}, ErrClockSet
	}
	return best, nil
}

// precise returns the comparison that PTP_SYS_OFFSET_PRECISE made, for which the
// hardware reads both clocks at once.
func precise(o *unix.PtpSysOffsetPrecise) (comparison, error) {
	device, ok1 := nanoseconds(o.Device)
	host, ok2 := nanoseconds(o.Realtime)
	if !ok1 || !ok2 {
		return comparison{}, ErrClockSet
	}
	return comparison{time.Duration(host), time.Duration(host), device}, nil
}

// nanoseconds returns a time modulo 2^64; false for what is none.
func nanoseconds(t unix.PtpClockTime) (uint64, bool) {
	return uint64(t.Sec)*uint64(time.Second) + uint64(t.Nsec), t.Nsec < uint32(time.Second)
}

// offset is by how much CLOCK_REALTIME is ahead of CLOCK_MONOTONIC, within an
// error.
type offset struct{ ahead, err time.Duration }

// betweenReadings returns the offset from CLOCK_REALTIME as read between two
// readings of CLOCK_MONOTONIC.
func betweenReadings(before, realtime, after time.Duration) offset {
	half := (after - before) / 2
	return offset{ahead: realtime - before - half, err: half + 1}
}

// reading puts a comparison on CLOCK_MONOTONIC, by the offsets right before and
// after it.
func (c comparison) reading(first, second offset) (Reading, error) {
	if (second.ahead - first.ahead).Abs() > first.err+second.err {
		return Reading{}, ErrClockSet
	}
	o := first
	if second.err < first.err {
		o = second
	}
	half := (c.after - c.before) / 2
	return Reading{PHC: c.phc, Monotonic: c.before + half - o.ahead, Error: half + 1 + o.err}, nil
}
