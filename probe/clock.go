package probe

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// boottime returns the time since boot, including suspend (CLOCK_BOOTTIME).
func boottime() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return 0, fmt.Errorf("read CLOCK_BOOTTIME: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
