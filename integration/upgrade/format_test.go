package upgrade

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
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
	newer := changed(t, "sqlbrain-newer-format", filepath.Join("coder", "value.go"), // writes version rows in another format
		"b = append(b, formatV1, flags(r.Tombstone))", "b = append(b, 9, flags(r.Tombstone))",
		"if len(b) < versionHeaderLen || b[0] != formatV1 {", "if len(b) < versionHeaderLen || b[0] != formatV1 && b[0] != 9 {")
	require.NoError(t, os.Symlink(newer, filepath.Join(programs, "sqlbrain")))

	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestUpgradeOfOneServer$", "-test.v")
	cmd.Env = append(os.Environ(), "SQLBRAIN_LONG=", harness.EnvPrograms+"="+programs, envFrom+"="+current)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit, "it passed: %s", out)
	require.Contains(t, string(out), "it has format 9, which this version does not read")
}

// TestANewerProtocolIsRefused: a member does not start next to one that it does not understand, or that does not
// understand it, and says which of the two to upgrade.
func TestANewerProtocolIsRefused(t *testing.T) {
	if !harness.Long() {
		t.Skip("it builds a sqlbrain: SQLBRAIN_LONG=1")
	}
	harness.NeedsDatabase(t)
	current := harness.Sqlbrain(t)
	newer := changed(t, "sqlbrain-newer-protocol", filepath.Join("server", "cluster", "member", "protocol.go"),
		"\tProtocol = 1\n", "\tProtocol = 9\n", "OldestProtocol = 0", "OldestProtocol = 8")
	for _, v := range []struct{ runs, starts, says string }{
		{current, newer, "it has protocol 1, and this program needs 8 or later; upgrade that member"},
		{newer, current, "it needs protocol 8 or later, and this program has 1; upgrade this program"},
	} {
		c := cluster.Start(t, cluster.Config{Size: 1, Programs: []string{v.runs}})
		peer := fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
		n := harness.NewMember(t, false, c.Datastore(), harness.Member{
			Name: "another", ClientPort: enginetest.FreePort(t), PeerURL: peer, AdvertisedPeerURL: peer,
		})
		out := harness.Run(t, wait, "", v.starts, n.Args()...)
		require.NotZero(t, out.Code)
		require.Contains(t, out.Stdout+out.Stderr, v.says)
	}
}

// changed builds a sqlbrain with changes of one file: pairs of texts, of which the second one replaces the first.
func changed(t *testing.T, name, file string, changes ...string) string {
	t.Helper()
	here, err := harness.Source(t.Context())
	require.NoError(t, err)
	path := filepath.Join(here, file)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	text := string(source)
	for i := 0; i < len(changes); i += 2 {
		require.Equal(t, 1, strings.Count(text, changes[i]), "%s", changes[i])
		text = strings.Replace(text, changes[i], changes[i+1], 1)
	}
	dir := t.TempDir()
	replacement, overlay := filepath.Join(dir, "replacement.go"), filepath.Join(dir, "overlay.json")
	require.NoError(t, os.WriteFile(replacement, []byte(text), 0o600))
	content, err := json.Marshal(map[string]map[string]string{"Replace": {path: replacement}})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(overlay, content, 0o600))
	return harness.SqlbrainOf(t, name, func() (string, error) { return here, nil }, "-overlay", overlay)
}
