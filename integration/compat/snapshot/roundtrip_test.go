package snapshot

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestFromEtcdAndBack: what an etcd has is what sqlbrain has after a restore, and what an
// etcd has that is restored from that.
func TestFromEtcdAndBack(t *testing.T) {
	harness.NeedsDatabase(t)
	ctx, cancel := context.WithTimeout(t.Context(), programWait)
	defer cancel()
	source := harness.StartEtcd(t)
	open := source.Client()
	give(t, ctx, open)
	protect(t, ctx, open)
	was := stateOf(t, ctx, asRoot(t, source))
	file := save(t, source, rootFlags...)
	source.Stop()
	for _, e := range harness.Engines() {
		t.Run(e.Name, func(t *testing.T) {
			datastore := e.Datastore(t)
			n := restored(t, datastore, file)
			c := asRoot(t, n)
			requireSame(t, was, stateOf(t, ctx, c))
			eve := awaitClient(t, n, clientv3.Config{Username: "eve", Password: "word"})
			_, err := eve.Get(ctx, "/registry/")
			require.ErrorContains(t, err, "permission denied")

			back := asRoot(t, restoredEtcd(t, save(t, n, rootFlags...)))
			requireSame(t, was, stateOf(t, ctx, back))

			backup := filepath.Join(t.TempDir(), "backup.db")
			out := harness.Run(t, programWait, "", harness.Sqlbrain(t), "backup", "--to", backup, "--datastore", datastore)
			require.Zero(t, out.Code, out.Stderr)
			requireSame(t, was, stateOf(t, ctx, asRoot(t, restoredEtcd(t, backup))))

			// Both go on, and compact, alike.
			for _, x := range []*clientv3.Client{c, back} {
				_, err := x.Put(ctx, "later", "")
				require.NoError(t, err)
				_, err = x.Delete(ctx, "/registry/", clientv3.WithPrefix())
				require.NoError(t, err)
				_, err = x.Compact(ctx, was.Revision, clientv3.WithCompactPhysical())
				require.NoError(t, err)
			}
			requireSame(t, stateOf(t, ctx, back), stateOf(t, ctx, c))
		})
	}
}
