package harness

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// On a machine that never needed a module, go list names no directory of it.
func TestModuleIsDownloadedIfTheCacheLacksIt(t *testing.T) {
	const module = "go.uber.org/goleak"
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOMODCACHE").Output()
	require.NoError(t, err)
	t.Setenv("GOPROXY", "file://"+filepath.Join(strings.TrimSpace(string(cache)), "cache", "download"))
	t.Setenv("GOMODCACHE", t.TempDir())
	t.Setenv("GOFLAGS", "-modcacherw")
	dir, err := Download(t.Context(), ".", module)
	require.NoError(t, err)
	require.FileExists(t, filepath.Join(dir, "leaks.go"))
	_, err = Download(t.Context(), ".", "example.com/no/such")
	require.ErrorContains(t, err, "example.com/no/such")
}
