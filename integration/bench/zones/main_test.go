//go:build linux

package zones

import (
	"os"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(envRouter) != "" {
		route()
		return
	}
	harness.TestMain(m)
}
