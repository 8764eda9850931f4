package fence

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestTheLeaseClockCountsSuspension: it is the system's clock that does.
func TestTheLeaseClockCountsSuspension(t *testing.T) {
	boot := func() time.Duration {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
			t.Fatal(err)
		}
		return time.Duration(ts.Nano())
	}
	before, now, after := boot(), Clock(), boot()
	if now < before || now > after {
		t.Errorf("the lease's clock says %s, between %s and %s since the system started", now, before, after)
	}
}
