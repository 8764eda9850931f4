package upgrade

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestANewRowFormatIsFound: TestUpgradeOfOneServer fails for a version that writes rows that the one before it cannot
// read, and the log says why.
func TestANewRowFormatIsFound(t *testing.T) {
	if !harness.Long() {
		t.Skip("it builds a sqlbrain, and waits for requests that fail: SQLBRAIN_LONG=1")
	}
	harness.NeedsDatabase(t)
	current := harness.Sqlbrain(t)
	programs := t.TempDir()
	newer := harness.SqlbrainOf(t, "sqlbrain-newer", func() (string, error) { return harness.Source(t.Context()) }, "-overlay", newFormat(t))
	require.NoError(t, os.Symlink(newer, filepath.Join(programs, "sqlbrain")))

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUpgradeOfOneServer$", "-test.v")
	cmd.Env = append(os.Environ(), "SQLBRAIN_LONG=", harness.EnvPrograms+"="+programs, envFrom+"="+current)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "it passed: %s", out)
	require.Contains(t, string(out), "it has format 9, which this version does not read")
}

// newFormat returns an overlay for go build, with which version rows are written in another format, and read in both.
func newFormat(t *testing.T) string {
	t.Helper()
	here, err := harness.Source(t.Context())
	require.NoError(t, err)
	path := filepath.Join(here, "coder", "value.go")
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(source)
	for _, change := range [][2]string{
		{"b = append(b, formatV1, flags(r.Tombstone))", "b = append(b, 9, flags(r.Tombstone))"},
		{"if len(b) < versionHeaderLen || b[0] != formatV1 {", "if len(b) < versionHeaderLen || b[0] != formatV1 && b[0] != 9 {"},
	} {
		require.Equal(t, 1, strings.Count(text, change[0]), "%s", change[0])
		text = strings.Replace(text, change[0], change[1], 1)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "value.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(changed, []byte(text), 0o600))
	content, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, content, 0o600))
	return overlay
}
