package compose

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// composeTool returns the path of Docker Compose, one of go.mod's tools. Go keeps it in
// its cache.
var composeTool = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "github.com/docker/compose/v2/cmd")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
})

// unavailable skips t for want of something, or fails it if that is demanded.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("SQLBRAIN_REQUIRE_ENGINES") == "1" {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// eventually waits until f returns nil, and fails t with its last error after limit.
func eventually(t *testing.T, limit time.Duration, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		err := f(ctx)
		if err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			require.NoError(t, err, "still so after %s", limit)
		}
	}
}
