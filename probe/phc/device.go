package phc

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// comparisons is how often a reading compares the clocks to keep the best: the
// kernel takes 25 at most, and a read of a device's register takes a microsecond.
const comparisons = 5

// Device is the clock of a network device. It is not safe for concurrent use.
type Device struct {
	file *os.File
	// imprecise is whether the hardware cannot read both clocks at once.
	imprecise bool
}

// Open opens /dev/ptpN for reading. The caller closes it.
func Open(index int) (*Device, error) {
	file, err := os.Open(fmt.Sprintf("/dev/ptp%d", index))
	if err != nil {
		return nil, fmt.Errorf("open the device's clock: %w", err)
	}
	return &Device{file: file}, nil
}

// Close closes the device.
func (d *Device) Close() error { return d.file.Close() }

// Read compares the device's clock with the host's. The error wraps
// [ErrClockSet] where another attempt may do.
func (d *Device) Read() (Reading, error) {
	first, err := realtimeOffset()
	if err != nil {
		return Reading{}, err
	}
	c, err := d.compare()
	if err != nil {
		return Reading{}, fmt.Errorf("read %s: %w", d.file.Name(), err)
	}
	second, err := realtimeOffset()
	if err != nil {
		return Reading{}, err
	}
	r, err := c.reading(first, second)
	if err != nil {
		return Reading{}, fmt.Errorf("read %s: %w", d.file.Name(), err)
	}
	return r, nil
}

func (d *Device) compare() (comparison, error) {
	fd := int(d.file.Fd())
	if !d.imprecise {
		o, err := unix.IoctlPtpSysOffsetPrecise(fd)
		switch {
		case err == nil:
			return precise(o)
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EINVAL):
			d.imprecise = true
		}
	}
	o, err := unix.IoctlPtpSysOffsetExtended(fd, comparisons)
	if err != nil {
		return comparison{}, err
	}
	return bestExtended(o)
}

// realtimeOffset compares the host's own clocks, several times to keep the best.
func realtimeOffset() (offset, error) {
	var best offset
	for i := range comparisons {
		before, err1 := read(unix.CLOCK_MONOTONIC)
		realtime, err2 := read(unix.CLOCK_REALTIME)
		after, err3 := read(unix.CLOCK_MONOTONIC)
		if err := errors.Join(err1, err2, err3); err != nil {
			return offset{}, err
		}
		if o := betweenReadings(before, realtime, after); i == 0 || o.err < best.err {
			best = o
		}
	}
	return best, nil
}

func read(clock int32) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("read clock %d: %w", clock, err)
	}
	return time.Duration(ts.Nano()), nil
}
