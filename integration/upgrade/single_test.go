package upgrade

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
)

// TestUpgradeOfOneServer changes the version of a server with an SQLite file, twice, under load. Requests may be answered
// with Unavailable while no server runs. No acknowledged write is lost, every watch is exact, and no lease ends early.
func TestUpgradeOfOneServer(t *testing.T) {
	t.Parallel()
	old, current := previous(t), harness.Sqlbrain(t)
	url := harness.SQLite.Datastore(t)
	c := cluster.Start(t, cluster.Config{
		Size: 1, Datastore: func(int) string { return url }, Programs: []string{old}, Patient: true, Extra: []string{cheap},
	})
	protect(t, c)
	u := &upgrade{t: t, c: c, s: siege.Lay(t, c, workers, wait)}
	u.leases = keepLeases(t, c, u.s.Recorder)
	u.s.Progress(settled)
	u.step("upgrade", func() { u.restart(0, current) })
	u.step("back", func() { u.restart(0, old) })
	u.step("upgrade again", func() { u.restart(0, current) })
	u.leases.end()
	u.s.End()
	for _, code := range u.s.Load.Errors() {
		require.Equal(t, codes.Unavailable, code, "a request failed in another way: %s", u.s.Load.Describe())
	}
}
