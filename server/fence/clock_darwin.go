package fence

import (
	"time"

	"golang.org/x/sys/unix"
)

// Clock returns the time that read leases are measured by, since a moment that does
// not change while the process runs; it is negative if the clock cannot be read. It counts
// the time that the machine sleeps, which Go's monotonic clock does not.
func Clock() time.Duration {
	var ts unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC_RAW, &ts) != nil {
		return -1
	}
	return time.Duration(ts.Nano())
}
