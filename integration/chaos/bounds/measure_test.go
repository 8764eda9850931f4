package bounds

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// memory returns the largest resident memory that the node's process has had, in bytes.
func memory(t testing.TB, node *harness.Node) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", node.Process().ID()))
	require.NoError(t, err)
	for line := range strings.Lines(string(status)) {
		if most, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(most), "kB")))
			require.NoError(t, err)
			return kilobytes << 10
		}
	}
	t.Fatalf("no VmHWM in\n%s", status)
	return 0
}
