package fence

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns the time that read leases are measured by, since a moment that does
// not change while the process runs; it is negative if the clock cannot be read. It counts
// the time that the machine is suspended, which Go's monotonic clock does not: a leader
// that wakes up must not believe in a lease that ended while it slept.
func Clock() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) != nil {
		return -1
	}
	return time.Duration(ts.Nano())
}
