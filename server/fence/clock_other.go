//go:build !linux && !darwin

package fence

import (
	"time"
)

var processStart = time.Now()

// Clock returns the time that read leases are measured by, since a moment that does
// not change while the process runs; it is negative if the clock cannot be read. This
// system has no clock here that counts the time that the machine is suspended. A leader
// may therefore believe in its read lease for leaseTime after it woke up.
func Clock() time.Duration {
	return time.Since(processStart)
}
