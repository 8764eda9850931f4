package compose

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) { harness.TestMain(m) }

// composeTool returns the path of Docker Compose, which Go builds in its module and keeps in its cache.
var composeTool = sync.OnceValues(func() (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "tool", "-n", "github.com/docker/compose/v2/cmd")
	cmd.Dir = filepath.Join("..", "..", "programs", "compose")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
})

// unavailable skips t for want of something, or fails it if that is demanded.
func unavailable(t *testing.T, format string, args ...any) {
	t.Helper()
	missing := fmt.Errorf(format, args...)
	enginetest.Need(t, missing, missing)
}
