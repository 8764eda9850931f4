package atwork

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tick is the unit of CPU times in /proc, USER_HZ, which is 100 on all of Linux'
// platforms that Go knows.
const tick = 10 * time.Millisecond

// usage is what programs have used so far, by role.
type usage struct {
	cpu map[string]time.Duration
	// peak is the most memory that there was of each process, summed.
	peak map[string]int64
	// machine is the CPU time that all processes of the machine used.
	machine time.Duration
}

// take reads the usage of processes that run.
func take(t *testing.T, programs []program) usage {
	t.Helper()
	u := usage{cpu: map[string]time.Duration{}, peak: map[string]int64{}, machine: machineTime(t)}
	for _, p := range programs {
		u.cpu[p.role] += processTime(t, p.pid)
		status := read(t, fmt.Sprintf("/proc/%d/status", p.pid))
		u.peak[p.role] += kilobytes(t, status, "VmHWM:")
	}
	return u
}

func processTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat := read(t, fmt.Sprintf("/proc/%d/stat", pid))
	// The second field is the name in parentheses, and may hold anything.
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	const user, system = 11, 12
	return ticks(t, fields[user]) + ticks(t, fields[system])
}

// machineTime is the time that the cores were busy, the host's other guests not
// counted.
func machineTime(t *testing.T) (busy time.Duration) {
	t.Helper()
	line, _, _ := strings.Cut(read(t, "/proc/stat"), "\n")
	fields := strings.Fields(line)
	for _, i := range []int{1, 2, 3, 6, 7} { // user, nice, system, irq, softirq
		busy += ticks(t, fields[i])
	}
	return busy
}

func ticks(t *testing.T, s string) time.Duration {
	t.Helper()
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return time.Duration(n) * tick
}

func kilobytes(t *testing.T, status, field string) int64 {
	t.Helper()
	_, rest, found := strings.Cut(status, field)
	require.True(t, found, field)
	n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	require.NoError(t, err)
	return n * 1024
}

func read(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(content)
}
