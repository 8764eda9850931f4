package program

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestStockMigrateTool drives golang-migrate's own program on the folder, in turn
// with sqlbrain's command: each finds what the other did.
func TestStockMigrateTool(t *testing.T) {
	harness.NeedsDatabase(t)
	product := enginetest.Any()
	raw := product.Database(t)
	tool := filepath.Join(t.TempDir(), "migrate")
	build := exec.CommandContext(t.Context(), "go", "build", "-tags", "mysql", "-o", tool,
		"github.com/golang-migrate/migrate/v4/cmd/migrate")
	out, err := build.CombinedOutput()
	require.NoError(t, err, string(out))

	u, err := url.Parse(raw)
	require.NoError(t, err)
	dsn := "mysql://" + u.User.String() + "@tcp(" + u.Host + ")" + u.Path
	if !product.Can(enginetest.Serializable) { // which the tool asks for; its lock suffices
		dsn += "?tidb_skip_isolation_level_check=1"
	}
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		require.NoError(t, err, "%s: %s", args, out)
		return strings.TrimSpace(string(out))
	}
	stock := func(args ...string) string {
		t.Helper()
		return run(tool, append([]string{"-path", filepath.Join("..", "..", "..", "migrations", "mysql"), "-database", dsn},
			args...)...)
	}
	own := func(args ...string) string {
		t.Helper()
		return run(harness.Sqlbrain(t), append(append([]string{"migrate"}, args...), "--datastore", raw)...)
	}
	stock("up")
	require.Equal(t, "1", stock("version"))
	require.Contains(t, own("version"), "schema version 1 (this binary needs 1)")
	own("up")
	stock("down", "-all")
	require.Contains(t, own("version"), "schema version 0")
	own("up")
	require.Equal(t, "1", stock("version"))
	stock("up") // nothing to do
	own("down", "--yes")
	stock("goto", "1")
	// A server takes what the tool made.
	n := harness.StartNodeOn(t, raw, "--migrate=verify")
	n.Stop()
	// sqlbrain and the tool agree on whether the schema is dirty.
	enginetest.Exec(t, raw, "UPDATE schema_migrations SET dirty = TRUE")
	require.Contains(t, own("version"), "did not finish")
	stock("force", "1")
	require.NotContains(t, own("version"), "did not finish")
}
