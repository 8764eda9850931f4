package program

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// secret is the password of the database users that these tests make.
const secret = "S3cr3tOfTests"

// TestProgramReportsFailures: what the command returns is the process's exit code, its one line of text is on standard
// error. The tests of cmd/sqlbrain have what is refused.
func TestProgramReportsFailures(t *testing.T) {
	harness.NeedsDatabase(t)
	for _, c := range []struct{ arg, want string }{
		{"--nosuch", "unknown flag: --nosuch"},
		{"--datastore=mysql://u:" + secret + "@127.0.0.1:1/d", "connection refused"},
	} {
		out := harness.Run(t, 3*time.Minute, "", harness.Sqlbrain(t), "serve", "--listen-peer-urls=",
			"--listen-client-urls=http://127.0.0.1:0", c.arg)
		require.Equal(t, 1, out.Code, out.Stderr)
		require.Empty(t, out.Stdout)
		require.NotContains(t, out.Stderr, secret)
		var said []string
		for line := range strings.Lines(out.Stderr) {
			if !strings.HasPrefix(line, "{") {
				said = append(said, line)
			}
		}
		require.Len(t, said, 1, out.Stderr)
		require.Contains(t, said[0], c.want)
	}
}
