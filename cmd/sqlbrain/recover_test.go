package main

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// recoverable is a database whose rows can be set back, as by a replica that
// lagged when it was promoted.
type recoverable struct {
	t         *testing.T
	datastore string
}

func (r recoverable) onServer() bool {
	u, err := sqlstore.ParseURL(r.datastore)
	return err == nil && u.Dialect == sqlstore.DialectMySQL
}

func (r recoverable) exec(statements ...string) {
	r.t.Helper()
	if r.onServer() {
		enginetest.Exec(r.t, r.datastore, statements...)
		return
	}
	sqliteExec(r.t, r.datastore, statements...)
}

func (r recoverable) keep() {
	r.t.Helper()
	if r.onServer() { // not every one makes a table of a query
		r.exec("CREATE TABLE kept LIKE object", "INSERT INTO kept SELECT * FROM object")
		return
	}
	r.exec("CREATE TABLE kept AS SELECT * FROM object")
}

func (r recoverable) lose() {
	r.t.Helper()
	// In one transaction: a server that finds its member row missing stops for that reason.
	r.exec("BEGIN", "DELETE FROM object", "INSERT INTO object SELECT * FROM kept", "COMMIT", "DROP TABLE kept")
}

// store opens the database while no server runs.
func (r recoverable) store(f func(context.Context, sqlstore.Store)) {
	r.t.Helper()
	u, err := sqlstore.ParseURL(r.datastore)
	require.NoError(r.t, err)
	s, err := engines.Open(r.t.Context(), u, sqlstore.Options{})
	require.NoError(r.t, err)
	f(r.t.Context(), s)
	require.NoError(r.t, s.Close())
}

func (r recoverable) token() (c coder.FenceToken) {
	r.t.Helper()
	r.store(func(ctx context.Context, s sqlstore.Store) {
		raw, err := s.Get(ctx, coder.FenceKey())
		require.NoError(r.t, err)
		c, err = coder.DecodeFenceToken(raw)
		require.NoError(r.t, err)
	})
	return c
}

// count returns how many rows lie in [lo, hi).
func (r recoverable) count(lo, hi []byte) (n int) {
	r.t.Helper()
	r.store(func(ctx context.Context, s sqlstore.Store) {
		for _, err := range s.Iter(ctx, sqlstore.Range{Start: lo, End: hi, KeysOnly: true}) {
			require.NoError(r.t, err)
			n++
		}
	})
	return n
}

// run executes recover and returns what it reports.
func (r recoverable) run(args ...string) recoverReport {
	r.t.Helper()
	a := succeed(r.t, append([]string{"recover", "-o", "json", "--datastore", r.datastore}, args...)...)
	var report recoverReport
	require.NoError(r.t, json.Unmarshal([]byte(a.stdout), &report))
	return report
}

// with runs f on a client of a server that is started for it.
func (r recoverable) with(f func(context.Context, *clientv3.Client)) {
	r.t.Helper()
	n := startNode(r.t, "--datastore", r.datastore)
	ctx := testContext(r.t)
	f(ctx, n.client(r.t))
	require.Zero(r.t, n.stop())
}

func eachRecoverable(t *testing.T, f func(recoverable)) {
	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) { f(recoverable{t, datastore}) })
}

func TestRecoverAfterCommitsWereLost(t *testing.T) {
	eachRecoverable(t, func(r recoverable) {
		t := r.t
		var kept, lost int64
		r.with(func(ctx context.Context, c *clientv3.Client) {
			for i := range 10 {
				p, err := c.Put(ctx, "old", fmt.Sprint(i))
				require.NoError(t, err)
				kept = p.Header.Revision
			}
			_, err := c.Delete(ctx, "old/none")
			require.NoError(t, err)
		})
		r.keep()
		r.with(func(ctx context.Context, c *clientv3.Client) {
			for _, key := range []string{"old", "lost"} {
				p, err := c.Put(ctx, key, "lost")
				require.NoError(t, err)
				lost = p.Header.Revision
			}
		})
		fence := r.token()
		r.lose()

		before := r.token()
		dry := r.run()
		require.False(t, dry.Done)
		require.Empty(t, dry.Problems)
		require.Equal(t, kept, dry.Found.Token.Revision)
		require.Equal(t, before.Term, dry.Found.Token.Term)
		require.Equal(t, kept, dry.Found.NewestLog)
		require.EqualValues(t, 1, dry.Found.Keys)
		require.Equal(t, before, r.token(), "nothing was changed")
		text := execute(t, "recover", "--datastore", r.datastore)
		require.Zero(t, text.code)
		require.Contains(t, text.stdout, fmt.Sprintf("revision %d,", kept))
		require.Contains(t, text.stdout, fmt.Sprint(kept+repair.DefaultBump))
		require.Contains(t, text.stdout, "repeat with --yes")

		done := r.run("--yes")
		bumped := kept + repair.DefaultBump
		require.True(t, done.Done)
		require.Equal(t, dry.Next, done.Next)
		require.Equal(t, recoverState{Term: r.token().Term, Revision: bumped, Sequence: r.token().Sequence,
			CompactRevision: bumped}, done.Next)
		require.Greater(t, r.token().Term, fence.Term, "what led the lost commits is fenced")
		require.Greater(t, r.token().Sequence, fence.Sequence)

		r.with(func(ctx context.Context, c *clientv3.Client) {
			g, err := c.Get(ctx, "", clientv3.WithPrefix())
			require.NoError(t, err)
			require.GreaterOrEqual(t, g.Header.Revision, bumped)
			require.Len(t, g.Kvs, 1)
			require.Equal(t, "9", string(g.Kvs[0].Value))
			require.Equal(t, kept, g.Kvs[0].ModRevision, "what was not lost is as it was")
			for _, rev := range []int64{kept, lost, bumped - 1} {
				_, err = c.Get(ctx, "old", clientv3.WithRev(rev))
				require.ErrorIs(t, err, rpctypes.ErrCompacted, "at revision %d", rev)
				w := <-c.Watch(ctx, "old", clientv3.WithRev(rev))
				require.True(t, w.Canceled)
				require.Equal(t, bumped, w.CompactRevision, "a watch from revision %d", rev)
			}
			g, err = c.Get(ctx, "old", clientv3.WithRev(bumped))
			require.NoError(t, err)
			require.Len(t, g.Kvs, 1)

			events := c.Watch(clientv3.WithRequireLeader(ctx), "old", clientv3.WithRev(bumped), clientv3.WithPrevKV())
			p, err := c.Put(ctx, "old", "new")
			require.NoError(t, err)
			require.Equal(t, bumped+1, p.Header.Revision)
			w := <-events
			require.NoError(t, w.Err())
			require.Len(t, w.Events, 1, "the first event after the gap")
			require.Equal(t, bumped+1, w.Events[0].Kv.ModRevision)
			require.Equal(t, "9", string(w.Events[0].PrevKv.Value))
			txn, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision("old"), "=", bumped+1)).
				Then(clientv3.OpPut("old", "newer"), clientv3.OpPut("other", "x")).Commit()
			require.NoError(t, err)
			require.True(t, txn.Succeeded)

			_, err = c.Put(ctx, "other", "y") // what the compact revision itself replaced goes with the next compaction
			require.NoError(t, err)
			_, err = c.Compact(ctx, bumped+3, clientv3.WithCompactPhysical())
			require.NoError(t, err)
			g, err = c.Get(ctx, "old")
			require.NoError(t, err)
			require.Equal(t, "newer", string(g.Kvs[0].Value))
			require.Equal(t, g.Kvs[0].ModRevision, bumped+2)
			require.EqualValues(t, 12, g.Kvs[0].Version)
		})
		lo, hi := coder.VersionBounds([]byte("old"), nil)
		require.Equal(t, 1, r.count(lo, hi), "compaction removed the versions on both sides of the gap")
		lo, hi = coder.LogBounds(0, bumped+2)
		require.Zero(t, r.count(lo, hi), "and the log rows")
	})
}

func TestRecoverIsRefused(t *testing.T) {
	eachRecoverable(t, func(r recoverable) {
		t := r.t
		refused := func(want string, args ...string) {
			t.Helper()
			execute(t, append([]string{"recover", "--yes", "--datastore", r.datastore}, args...)...).requireRefused(t, want)
		}
		if u, err := sqlstore.ParseURL(r.datastore); err == nil && u.Dialect == sqlstore.DialectSQLite {
			refused("no such file")
		} else {
			refused("no sqlbrain schema")
		}
		succeed(t, "migrate", "up", "--datastore", r.datastore)
		refused("the table is empty")
		refused("--bump-revision must be at least 1", "--bump-revision=0")
		r.with(func(ctx context.Context, c *clientv3.Client) {
			_, err := c.Put(ctx, "k", "v")
			require.NoError(t, err)
			if u, err := sqlstore.ParseURL(r.datastore); err == nil && u.Dialect == sqlstore.DialectSQLite {
				refused("in use by another sqlbrain")
			}
		})
		refused("cannot be raised", "--bump-revision=9223372036854775807")
		before := r.token()
		report := r.run("--yes", "--bump-revision=1", "--mark-compacted=false")
		require.EqualValues(t, -1, report.Next.CompactRevision)
		require.Equal(t, before.Revision+1, r.token().Revision)

		r.exec(fmt.Sprintf("DELETE FROM object WHERE internal_key = x'%x'", coder.FenceKey()))
		report = r.run()
		require.Nil(t, report.Found.Token)
		require.Equal(t, []string{"the fence row is missing"}, report.Problems)
		require.Contains(t, succeed(t, "recover", "--datastore", r.datastore).stdout, "the fence row is missing")
	})
}

// TestRecoverIsRefusedWhileMembersRun: recover and a second process under the member's name
// are refused while it runs, and name it; both can be forced.
func TestRecoverIsRefusedWhileMembersRun(t *testing.T) {
	onProducts(t, func(t *testing.T, p enginetest.Product) {
		r := recoverable{t, newUser(t, p.Database(t), "ALL PRIVILEGES")}
		member := []string{"--datastore", r.datastore, "--name=n1", "--listen-client-urls=http://127.0.0.1:0",
			"--listen-peer-urls=http://127.0.0.1:0", "--initial-advertise-peer-urls=http://127.0.0.1:7380"}
		first := startNode(t, member...)
		first.log.await("leading")
		execute(t, member...).requireRefused(t, `member "n1" (`, "http://127.0.0.1:7380", "heartbeat ", "--force-join")
		before := r.token()
		execute(t, "recover", "--yes", "--datastore", r.datastore).requireRefused(t, `member "n1" (`,
			"http://127.0.0.1:7380", "heartbeat ", "--force")
		require.Equal(t, before.Revision, r.token().Revision)

		r.run("--yes", "--force")
		require.Equal(t, before.Revision+repair.DefaultBump, r.token().Revision)
		second := startNode(t, append(member, "--force-join")...)
		first.log.await("this process is no longer a member of the cluster")
		require.Zero(t, first.stop())
		require.Zero(t, second.stop())
		r.run("--yes")
	})
}
