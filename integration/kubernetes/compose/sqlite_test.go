package compose

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestSQLiteProfile starts the profile. The data is still there when the container was replaced.
func TestSQLiteProfile(t *testing.T) {
	e := newEngine(t)
	p := newProject(t, e)
	p.profile = "sqlite"
	p.run(25*time.Minute, "up", "--build", "--detach", "--wait", "--wait-timeout=600")
	endpoint := "http://127.0.0.1:" + p.env["N1_PORT"]
	c := harness.ClientOf(t, endpoint)
	_, err := c.Put(t.Context(), "k", "v")
	require.NoError(t, err)
	members, err := c.MemberList(t.Context())
	require.NoError(t, err)
	require.Len(t, members.Members, 1)
	require.Equal(t, []string{endpoint}, members.Members[0].ClientURLs)

	first := p.container("sqlite-n1").ID
	p.run(5*time.Minute, "up", "--force-recreate", "--detach", "--wait", "--wait-timeout=600")
	require.NotEqual(t, first, p.container("sqlite-n1").ID)
	got, err := harness.ClientOf(t, endpoint).Get(t.Context(), "k")
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
	require.Equal(t, "v", string(got.Kvs[0].Value))
	require.NotContains(t, p.run(eventually.Deadline, "logs", "--no-color"), "that is not a setting")
}
