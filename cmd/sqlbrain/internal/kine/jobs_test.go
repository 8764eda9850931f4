package kine

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// stopping is a store in which the commit after so many others is preceded by a call of other.
type stopping struct {
	sqlstore.Store
	left  int
	other func()
}

func (s *stopping) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if s.left--; s.left == -1 {
			s.other()
		}
		return b.BatchWrite.Commit(context.WithoutCancel(ctx)) // other may have taken long
	})
}

// jobsOfTest is a database with kine's table, on which jobs run. All restores and imports write the same keys, whose
// values say by the first byte of which run they are.
type jobsOfTest struct {
	*testing.T
	kine  *sql.DB
	store sqlstore.Store
}

const (
	jobKeys  = 5
	jobValue = 11 << 19 // three of them fill a commit; a row of TiDB ends at 6 MiB
)

// ofKine is the first byte of the values in kine's table.
const ofKine = 0

func newJobs(t *testing.T) *jobsOfTest {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	for _, s := range append(claimedTable[:2:2],
		fmt.Sprintf("INSERT INTO kine WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d) "+
			"SELECT i, '/' || i, 1, 0, 0, 0, 0, zeroblob(%d), '' FROM n", jobKeys, jobValue)) {
		_, err := db.ExecContext(t.Context(), s)
		require.NoError(t, err)
	}
	return &jobsOfTest{T: t, kine: db}
}

// reset gives the jobs another database.
func (t *jobsOfTest) reset(store sqlstore.Store) {
	t.store = store
	table, err := Inspect(t.Context(), sqlstore.DialectSQLite, t.kine)
	require.NoError(t, err)
	if statement := map[Table]string{Used: claimTable, Adopted: reclaimTable}[table]; statement != "" {
		_, err = t.kine.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
}

func (t *jobsOfTest) adoption(store sqlstore.Store) *Adoption {
	return &Adoption{DB: t.kine, Store: store, Dialect: sqlstore.DialectSQLite, Logger: slog.New(slog.DiscardHandler)}
}

func (t *jobsOfTest) run(name string, store sqlstore.Store, mark byte) error {
	ctx := t.Context()
	switch name {
	case "restore":
		r, err := repair.BeginRestore(ctx, store, -1)
		for i := range int64(jobKeys) {
			if err != nil {
				return err
			}
			value := make([]byte, jobValue)
			value[0] = mark
			err = r.Put(ctx, &coder.Record{Key: fmt.Appendf(nil, "/%d", i+1), Value: value, CreateRevision: i + 2,
				ModRevision: i + 2, Version: 1})
		}
		if err != nil {
			return err
		}
		_, _, err = r.Finish(ctx, 0, nil)
		return err
	case "import":
		return t.adoption(store).Import(ctx, false)
	case "revert":
		return t.adoption(store).Revert(ctx, false)
	case "recover":
		found, err := repair.Examine(ctx, store)
		if err != nil {
			return err
		}
		next, err := found.Plan(1000, true)
		if err != nil {
			return err
		}
		return found.Recover(ctx, store, next)
	default:
		return t.serve(store)
	}
}

// serve runs a server until it has written a key.
func (t *jobsOfTest) serve(store sqlstore.Store) error {
	cfg := replica.DefaultConfig()
	cfg.Logger, cfg.RequestTimeout, cfg.Write.CommitTimeout = slog.New(slog.DiscardHandler), eventually.Deadline,
		eventually.Deadline
	b, err := replica.OpenLeader(t.Context(), store, cfg)
	if err != nil {
		return err
	}
	_, err = b.Txn(t.Context(), auth.System, &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte("served"),
		Value: []byte("v")}}}}, true)
	return errors.Join(err, b.Close(t.Context()))
}

// content returns of which run the keys are: "none", "kine", or what its mark is; "returned" if kine has its table back
// and nothing is served.
func (t *jobsOfTest) content() string {
	table, err := Inspect(t.Context(), sqlstore.DialectSQLite, t.kine)
	require.NoError(t, err)
	switch err := repair.RefuseUnfinished(t.Context(), t.store); {
	case table == Used && errors.Is(err, repair.ErrReverting):
		return "returned"
	case err != nil:
		return "incomplete"
	}
	lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
	rows, _, err := t.store.List(t.Context(), sqlstore.ListQuery{Start: lo, End: hi, MaxBytes: 1 << 30})
	require.NoError(t, err)
	of, keys := "none", 0
	for _, row := range rows {
		key, err := coder.DecodeIndexKey(row.Key)
		require.NoError(t, err)
		require.NotNil(t, row.Version, "the key %s has no value", key)
		if bytes.Equal(key, []byte("served")) {
			continue
		}
		x, err := coder.DecodeIndex(row.Index)
		require.NoError(t, err)
		v, err := coder.DecodeVersion(key, x.ModRevision, row.Version)
		require.NoError(t, err)
		whose := string(v.Value[:1])
		if v.Value[0] == ofKine {
			whose = "kine"
		}
		if keys++; keys > 1 {
			require.Equal(t, of, whose, "keys of two jobs")
		}
		of = whose
	}
	require.Contains(t, []int{0, jobKeys}, keys)
	return of
}

// pairs are the outcomes of a job and of another one that is started before one of the first one's commits, and that
// runs to its end there. early is that of the first commit, by which the first job takes the table. Each names the job
// that completes, or both, and whose keys the table then has. A server has commits of several kinds, and so several
// outcomes.
var pairs = []struct{ first, second, early, late string }{
	{"restore", "restore", "second 2", "second 2"},
	{"restore", "import", "second kine", "first 1"},
	{"restore", "revert", "second returned", "first 1"}, // early: the table is empty, and kine gets its own
	{"restore", "recover", "first 1", "first 1"},
	{"restore", "serve", "second none", "first 1"},
	{"import", "restore", "second 2", "first kine"},
	{"import", "import", "second kine", "second kine"},
	{"import", "revert", "second incomplete", "second returned"}, // early: what the import has taken lacks kine's table
	{"import", "recover", "first kine", "first kine"},
	{"import", "serve", "second none", "first kine"},
	{"revert", "restore", "first returned", "first returned"},
	{"revert", "import", "both returned", "second kine"}, // early: it has been imported
	{"revert", "revert", "second returned", "second returned"},
	{"revert", "recover", "second kine", "first returned"},
	{"revert", "serve", "second kine", "first returned"},
	{"recover", "restore", "first kine", ""},
	{"recover", "import", "both kine", ""},
	{"recover", "revert", "second returned", ""},
	{"recover", "recover", "both kine", ""}, // they write the same
	{"recover", "serve", "second kine", ""},
	{"serve", "restore", "first kine", "first kine"},
	{"serve", "import", "both kine", "both kine"},
	{"serve", "revert", "second returned", "second returned, first kine"},
	{"serve", "recover", "both kine", "both kine, second kine"},
	{"serve", "serve", "both kine", "both kine, second kine"},
}

// clearErrors are the errors of a job that does not complete because of another.
var clearErrors = []error{
	repair.ErrRestoring, repair.ErrImporting, repair.ErrReverting, repair.ErrOvertaken, repair.ErrNotEmpty,
	repair.ErrFenceMoved,
	repair.ErrNothingToRecover, ErrWritten, ErrServed, fence.ErrDeposed, fence.ErrDataLost,
}

// stopped runs first, and second before the first's commit number stop. ran reports whether there is such a commit.
func (t *jobsOfTest) stopped(first, second string, stop int) (outcome string, ran bool) {
	var err2 error
	err1 := t.run(first, &stopping{t.store, stop, func() {
		ran = true
		err2 = t.run(second, t.store, '2')
	}}, '1')
	if !ran {
		require.NoError(t, err1)
		return "", false
	}
	what := fmt.Sprintf("%s, stopped at %d by %s: %v; %v", first, stop, second, err1, err2)
	t.Log(what)
	content := t.content()
	switch {
	case err1 == nil && err2 == nil:
		outcome = "both"
	case err1 == nil:
		outcome = "first"
	case err2 == nil:
		outcome = "second"
	}
	for _, err := range []error{err1, err2} {
		if err != nil && content != "incomplete" {
			require.True(t, slices.ContainsFunc(clearErrors, func(c error) bool { return errors.Is(err, c) }), what)
		}
	}
	if first == "serve" && err1 == nil || second == "serve" && err2 == nil {
		_, err := t.store.Get(t.Context(), coder.EncodeIndexKey([]byte("served")))
		require.NoError(t, err, "an acknowledged write is gone: %s", what)
	}
	return outcome + " " + content, true
}

func TestEveryPairOfJobs(t *testing.T) {
	jobs := newJobs(t)
	for _, pair := range pairs {
		t.Run(pair.first+" and "+pair.second, func(t *testing.T) {
			jobs.T = t
			for stop := 0; ; stop++ {
				jobs.reset(memstore.New())
				if pair.first != "restore" && pair.first != "import" {
					require.NoError(t, jobs.run("import", jobs.store, 0))
				}
				outcome, ran := jobs.stopped(pair.first, pair.second, stop)
				if !ran {
					require.Equal(t, pair.late != "", stop > 1)
					return
				}
				want := pair.early
				if stop > 0 {
					want = pair.late
				}
				require.Contains(t, strings.Split(want, ", "), outcome)
			}
		})
	}
}

// TestJobsOnEngines: a transaction of the engine compares the token.
func TestJobsOnEngines(t *testing.T) {
	for _, product := range enginetest.Products() {
		t.Run(string(product), func(t *testing.T) {
			t.Parallel()
			jobs := newJobs(t)
			for _, pair := range pairs[:2] {
				for stop, ran := 0, true; ran; stop++ {
					u, err := sqlstore.ParseURL(product.Database(t))
					require.NoError(t, err)
					db, err := engines.OpenDB(u, sqlstore.Options{})
					require.NoError(t, err)
					require.NoError(t, migrations.Up(t.Context(), u.Dialect, db.SQL()))
					require.NoError(t, db.Close())
					store, err := engines.Open(t.Context(), u, sqlstore.Options{})
					require.NoError(t, err)
					jobs.reset(store)
					var outcome string
					if outcome, ran = jobs.stopped(pair.first, pair.second, stop); ran {
						want := pair.early
						if stop > 0 {
							want = pair.late
						}
						require.Equal(t, want, outcome)
					}
					require.NoError(t, store.Close())
				}
			}
		})
	}
}
