package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// TestAKilledRestore: nothing serves what it leaves, and it can be run again.
func TestAKilledRestore(t *testing.T) {
	harness.NeedsDatabase(t)
	ctx, cancel := context.WithTimeout(t.Context(), programWait)
	defer cancel()
	source := harness.StartEtcd(t)
	c := source.Client()
	const batches, keys = 400, 100
	for batch := range batches {
		var ops []clientv3.Op
		for i := range keys {
			ops = append(ops, clientv3.OpPut(fmt.Sprintf("/registry/%d/%d", i, batch), strings.Repeat("x", 1000)))
		}
		_, err := c.Txn(ctx).Then(ops...).Commit()
		require.NoError(t, err)
	}
	file := save(t, source)
	source.Stop()

	datastore := ""
	for datastore == "" {
		require.NoError(t, ctx.Err(), "each restore ended before it could be killed")
		path := filepath.Join(t.TempDir(), "data.db")
		if killedHalfway(ctx, t, file, path) {
			datastore = "sqlite://" + path
		}
	}

	out := harness.Run(t, programWait, "", harness.Sqlbrain(t), "serve", "--datastore", datastore, "--listen-client-urls",
		"http://127.0.0.1:0")
	require.NotZero(t, out.Code, "it serves what a restore has left")
	require.Contains(t, out.Stderr, "is being restored, or a restore was interrupted")

	n := restored(t, datastore, file)
	got, err := awaitClient(t, n, clientv3.Config{}).Get(ctx, "/registry/", clientv3.WithPrefix(),
		clientv3.WithCountOnly())
	require.NoError(t, err)
	require.EqualValues(t, batches*keys, got.Count)
	n.Stop()
	out = harness.Run(t, programWait, "", harness.Sqlbrain(t), "restore", file, "--datastore", datastore)
	require.NotZero(t, out.Code)
	require.Contains(t, out.Stderr, "the database is not empty")
}

// killedHalfway kills a restore into the SQLite file at path when it has written half of it, and reports true. It
// reports false if the restore ended before that, as it may on a busy machine.
func killedHalfway(ctx context.Context, t *testing.T, file, path string) bool {
	t.Helper()
	p := harness.StartProcess(t, harness.Sqlbrain(t), "restore", file, "--datastore", "sqlite://"+path)
	const half = 12 << 20
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		size := int64(0)
		for _, suffix := range []string{"", "-wal"} {
			if info, err := os.Stat(path + suffix); err == nil {
				size += info.Size()
			}
		}
		if size > half {
			p.Kill(t)
			return !strings.Contains(p.LogTail(2000), "revision") // which it reports at its end
		}
		select {
		case <-poll.C:
		case <-p.Exited():
			return false
		case <-ctx.Done():
			t.Fatalf("it has written %d bytes\n%s", size, p.LogTail(2000))
		}
	}
}
