package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// bootTime returns the wall-clock time of the boot, to show times since boot
// to people.
func bootTime() (time.Time, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return time.Time{}, fmt.Errorf("read the time since boot: %w", err)
	}
	return time.Now().Add(-time.Duration(ts.Nano())), nil
}
