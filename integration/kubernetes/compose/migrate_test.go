package compose

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	// The packages of golang-migrate's module for MySQL that its command needs. The command itself
	// would be a tool in go.mod, if that did not bring the drivers of all databases in.
	_ "github.com/golang-migrate/migrate/v4/database/mysql"
	_ "github.com/golang-migrate/migrate/v4/source/file"
	"github.com/stretchr/testify/require"
)

// buildMigrate builds golang-migrate's command, which its official images hold.
func buildMigrate(t *testing.T) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "migrate")
	cmd := exec.CommandContext(t.Context(), "go", "build", "-tags=mysql", "-trimpath", "-buildvcs=false", "-o", path,
		"github.com/golang-migrate/migrate/v4/cmd/migrate")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	return path
}
