package kine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// claimedTable is kine's table as it is once it was claimed, with more rows than one commit of an import has.
var claimedTable = []string{
	"CREATE TABLE kine (id INTEGER PRIMARY KEY, name_being_imported VARCHAR(630), created INTEGER, deleted INTEGER, create_revision INTEGER, " +
		"prev_revision INTEGER, lease INTEGER, value BLOB, old_value BLOB)",
	"CREATE INDEX kine_name_id_index ON kine (name_being_imported, id)",
	"INSERT INTO kine WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 6000) " +
		"SELECT i, '/registry/' || i, 1, 0, 0, 0, CASE WHEN i % 1000 = 0 THEN i ELSE 0 END, 'v', '' FROM n",
}

// failing is a store that commits so many batches, and then fails.
type failing struct {
	sqlstore.Store
	left int
}

var errCut = errors.New("cut off")

func (s *failing) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if s.left == 0 {
			return errCut
		}
		s.left--
		return b.BatchWrite.Commit(ctx)
	})
}

// rowsOf describes the rows of a store. Of the fence row only the revision counts. The row of a job that has ended
// does not count, and neither does when an import was made.
func rowsOf(t *testing.T, store sqlstore.Store) string {
	t.Helper()
	number, digest, revision := 0, sha256.New(), int64(0)
	for row, err := range store.Iter(t.Context(), sqlstore.Range{Start: []byte{}, End: []byte{0xff}}) {
		require.NoError(t, err)
		if bytes.Equal(row.Key, coder.JobKey()) && repair.RefuseUnfinished(t.Context(), store) == nil {
			continue
		}
		number++
		if bytes.Equal(row.Key, coder.FenceKey()) {
			token, err := coder.DecodeFenceToken(row.Value)
			require.NoError(t, err)
			revision = token.Revision
			continue
		}
		if _, _, err := coder.DecodeLogKey(row.Key); err == nil {
			changes, err := coder.DecodeLog(row.Value)
			require.NoError(t, err)
			fmt.Fprintf(digest, "%x=%v\n", row.Key, changes)
			continue
		}
		fmt.Fprintf(digest, "%x=%x\n", row.Key, row.Value)
	}
	return fmt.Sprintf("%d rows, revision %d, %x", number, revision, digest.Sum(nil))
}

// TestAnImportGoesOnAfterAnyCommit interrupts an import, and a return to kine, after each commit.
func TestAnImportGoesOnAfterAnyCommit(t *testing.T) {
	_, exec, adoption, _ := claimed(t, 6000)
	whole := memstore.New()
	require.NoError(t, adoption(whole).Import(t.Context(), false))
	want := rowsOf(t, whole)

	last := -1
	for commits := 0; last < 0; commits++ {
		exec(reclaimTable)
		store := memstore.New()
		if err := adoption(&failing{store, commits}).Import(t.Context(), false); err == nil {
			last = commits
		} else {
			require.ErrorIs(t, err, errCut)
			require.NoError(t, adoption(store).Import(t.Context(), false))
		}
		require.Equal(t, want, rowsOf(t, store), "%d commits", commits)
		require.NoError(t, adoption(store).Import(t.Context(), false))
		require.Equal(t, want, rowsOf(t, store), "a second import")
	}
	require.Greater(t, last, 2)

	exec(reclaimTable)
	for commits, ended := 0, false; !ended; commits++ {
		store := memstore.New()
		require.NoError(t, adoption(store).Import(t.Context(), false))
		err := adoption(&failing{store, commits}).Revert(t.Context(), false)
		if ended = err == nil; !ended {
			require.ErrorIs(t, err, errCut)
			if commits > 0 {
				// It can be finished, or taken back.
				again := memstore.New()
				copyRows(t, again, store)
				require.NoError(t, adoption(again).Import(t.Context(), false))
				require.Equal(t, want, rowsOf(t, again))
				exec(reclaimTable)
			}
			require.NoError(t, adoption(store).Revert(t.Context(), false))
		}
		require.ErrorIs(t, repair.RefuseUnfinished(t.Context(), store), repair.ErrReverting)
		require.Regexp(t, "^3 rows,", rowsOf(t, store), "those of the job, and the fence row")
		require.ErrorIs(t, adoption(store).Revert(t.Context(), false), ErrNothingAdopted)
		exec(claimTable)
	}
}

func copyRows(t *testing.T, to, from sqlstore.Store) {
	t.Helper()
	batch := to.BeginBatchWrite()
	for row, err := range from.Iter(t.Context(), sqlstore.Range{Start: []byte{}, End: []byte{0xff}}) {
		require.NoError(t, err)
		batch.Put(row.Key, row.Value)
	}
	require.NoError(t, batch.Commit(t.Context()))
}

// TestProcessesThatImportAtOnce: one of them imports.
func TestProcessesThatImportAtOnce(t *testing.T) {
	for _, product := range enginetest.Products() {
		t.Run(string(product), func(t *testing.T) {
			t.Parallel()
			raw := product.Database(t)
			enginetest.Exec(t, raw, strings.Replace(claimedTable[0], "name_being_imported", "name", 1),
				"INSERT INTO kine VALUES (1, '/registry/a', 1, 0, 0, 0, 0, 'a', ''), (2, '/registry/b', 1, 0, 0, 0, 0, 'b', '')")
			u, err := sqlstore.ParseURL(raw)
			require.NoError(t, err)
			db, err := engines.OpenDB(u, sqlstore.Options{})
			require.NoError(t, err)
			defer db.Close()
			require.NoError(t, migrations.Up(t.Context(), u.Dialect, db.SQL()))
			store, err := engines.Open(t.Context(), u, sqlstore.Options{})
			require.NoError(t, err)
			defer store.Close()

			var mu sync.Mutex
			var log bytes.Buffer
			logger := slog.New(slog.NewTextHandler(writer(func(p []byte) (int, error) {
				mu.Lock()
				defer mu.Unlock()
				return log.Write(p)
			}), nil))
			errs := make([]error, 3)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() {
					errs[i] = (&Adoption{DB: db.SQL(), Store: store, Dialect: u.Dialect, Logger: logger}).Import(t.Context(), false)
				})
			}
			all.Wait()
			require.NoError(t, errors.Join(errs...))
			require.Equal(t, 1, strings.Count(log.String(), "imported the keys"), log.String())
		})
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// unreadable is a store that reads so many pages of values, and then fails.
type unreadable struct {
	sqlstore.Store
	left int
}

func (s *unreadable) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	if s.left == 0 {
		return nil, errCut
	}
	s.left--
	return s.Store.MultiGet(ctx, keys)
}

// claimed returns a database with a table of so many keys that was taken from kine, and what executes a statement
// there, makes an adoption into a store, and looks at the table.
func claimed(t *testing.T, keys int) (db *sql.DB, exec func(statement string), adoption func(sqlstore.Store) *Adoption,
	inspect func() Table) {
	t.Helper()
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	exec = func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	for _, s := range claimedTable {
		exec(strings.Replace(s, "6000", strconv.Itoa(keys), 1))
	}
	adoption = func(store sqlstore.Store) *Adoption {
		return &Adoption{DB: db, Store: store, Dialect: sqlstore.DialectSQLite, Logger: slog.New(slog.DiscardHandler)}
	}
	inspect = func() Table {
		t.Helper()
		table, err := Inspect(t.Context(), sqlstore.DialectSQLite, db)
		require.NoError(t, err)
		return table
	}
	return db, exec, adoption, inspect
}

// TestWritingBackBeginsAnew: kine gets no part of the keys, and a server that goes on serves what it had.
func TestWritingBackBeginsAnew(t *testing.T) {
	db, exec, adoption, inspect := claimed(t, 2000)
	store := memstore.New()
	require.NoError(t, adoption(store).Import(t.Context(), false))
	write := func(key string, rev int64) {
		t.Helper()
		raw, err := store.Get(t.Context(), coder.FenceKey())
		require.NoError(t, err)
		token, err := coder.DecodeFenceToken(raw)
		require.NoError(t, err)
		token.Revision = rev
		r := &coder.Record{Key: []byte(key), Value: []byte(key), CreateRevision: rev, ModRevision: rev, Version: 1}
		b := store.BeginBatchWrite()
		b.CAS(coder.FenceKey(), coder.EncodeFenceToken(token), raw)
		b.Put(coder.EncodeIndexKey(r.Key), coder.EncodeIndex(coder.Index{ModRevision: rev, CreateRevision: rev, Version: 1}))
		b.Put(coder.EncodeVersionKey(r.Key, rev), coder.EncodeVersion(r))
		require.NoError(t, b.Commit(t.Context()))
	}
	write("/new/1", 2001)
	before := rowsOf(t, store)
	require.ErrorIs(t, adoption(store).Revert(t.Context(), false), ErrWritten)
	require.Equal(t, Adopted, inspect())
	for pages := range 3 {
		require.ErrorIs(t, adoption(&unreadable{store, pages * 10}).Revert(t.Context(), true), errCut)
		require.Equal(t, Partial, inspect())
		require.ErrorIs(t, adoption(store).Revert(t.Context(), false), ErrWritten)
		require.NoError(t, adoption(store).Import(t.Context(), false), "a server goes on")
		require.Equal(t, before, rowsOf(t, store))
		require.ErrorIs(t, adoption(memstore.New()).Import(t.Context(), false), errPartial)
		require.ErrorIs(t, adoption(memstore.New()).Revert(t.Context(), true), errPartial)
	}
	write("/new/2", 2002)

	// A server that writes at this moment keeps its data.
	late := &lateWrite{Store: store, write: func() { write("/new/3", 2003) }}
	require.ErrorIs(t, adoption(late).Revert(t.Context(), true), ErrServed)
	require.Equal(t, Partial, inspect())
	// If a server continues, the rows in kine's table are old, and nothing is filled with them.
	require.NoError(t, adoption(store).Import(t.Context(), false))
	require.ErrorIs(t, adoption(memstore.New()).Import(t.Context(), false), errPartial)

	for commits := range 2 {
		again := memstore.New()
		copyRows(t, again, store)
		require.ErrorIs(t, adoption(&failing{again, commits}).Revert(t.Context(), true), errCut)
		require.Equal(t, Partial, inspect())
		if commits > 0 { // The keys are in kine's table: it can be imported, or returned.
			imported := memstore.New()
			copyRows(t, imported, again)
			require.NoError(t, adoption(imported).Import(t.Context(), false))
			require.Equal(t, Adopted, inspect())
			exec(beginWriting)
			require.NoError(t, adoption(again).Revert(t.Context(), false))
			exec("ALTER TABLE kine RENAME COLUMN name TO name_being_written")
		}
	}
	write(compactKey, 2004) // kube-apiserver's, of the name of kine's own
	require.NoError(t, adoption(store).Revert(t.Context(), true))
	require.Equal(t, Used, inspect())
	var rows, newest int
	require.NoError(t, db.QueryRowContext(t.Context(),
		"SELECT COUNT(*), MAX(id) FROM kine WHERE name = 'compact_rev_key'").Scan(&rows, &newest))
	require.Equal(t, []int{1, 2005}, []int{rows, newest})
	require.NoError(t, db.QueryRowContext(t.Context(),
		"SELECT COUNT(*), MAX(id) FROM kine WHERE name <> 'compact_rev_key'").Scan(&rows, &newest))
	require.Equal(t, []int{2003, 2003}, []int{rows, newest})
}

// TestKeysOfOneTransactionOutliveACompactionOfKines: one of two keys that a transaction created was changed since.
func TestKeysOfOneTransactionOutliveACompactionOfKines(t *testing.T) {
	db, exec, adoption, _ := claimed(t, 1)
	store := memstore.New()
	require.NoError(t, adoption(store).Import(t.Context(), false))
	raw, err := store.Get(t.Context(), coder.FenceKey())
	require.NoError(t, err)
	token, err := coder.DecodeFenceToken(raw)
	require.NoError(t, err)
	token.Revision = 3
	b := store.BeginBatchWrite()
	b.CAS(coder.FenceKey(), coder.EncodeFenceToken(token), raw)
	for key, changed := range map[string]int64{"/a": 3, "/b": 2} {
		r := &coder.Record{Key: []byte(key), CreateRevision: 2, ModRevision: changed, Version: changed - 1}
		b.Put(coder.EncodeIndexKey(r.Key), coder.EncodeIndex(coder.Index{ModRevision: changed, CreateRevision: 2,
			Version: r.Version}))
		b.Put(coder.EncodeVersionKey(r.Key, changed), coder.EncodeVersion(r))
	}
	require.NoError(t, b.Commit(t.Context()))
	require.NoError(t, adoption(store).Revert(t.Context(), true))
	exec("DELETE FROM kine WHERE id IN (SELECT prev_revision FROM kine WHERE name != 'compact_rev_key' AND " +
		"prev_revision != 0 UNION SELECT id FROM kine WHERE deleted != 0)") // as kine's
	var keys string
	require.NoError(t, db.QueryRowContext(t.Context(),
		"SELECT GROUP_CONCAT(name || id) FROM (SELECT * FROM kine ORDER BY id)").Scan(&keys))
	require.Equal(t, "/registry/11,/b2,/a3,compact_rev_key4", keys)
}

// TestImportThatEndedIsNotRepeated: a table whose keys were imported is no source any more, whatever becomes of the
// store.
func TestImportThatEndedIsNotRepeated(t *testing.T) {
	_, exec, adoption, inspect := claimed(t, 10)
	requireTable := func(want Table) {
		t.Helper()
		require.Equal(t, want, inspect())
	}

	// A process that was served before the import has other keys.
	served := memstore.New()
	b := served.BeginBatchWrite()
	b.PutIfNotExist(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 1, Term: 1, Revision: 9}))
	require.NoError(t, b.Commit(t.Context()))
	require.ErrorIs(t, adoption(served).Import(t.Context(), false), ErrBoth)
	require.ErrorIs(t, adoption(served).Revert(t.Context(), true), ErrBoth)
	requireTable(Importing)

	store := memstore.New()
	require.NoError(t, adoption(store).Import(t.Context(), false))
	requireTable(Adopted)
	want := rowsOf(t, store)
	exec(reclaimTable) // The process ended before its last statement.
	require.NoError(t, adoption(store).Import(t.Context(), false))
	requireTable(Adopted)
	require.Equal(t, want, rowsOf(t, store))
	require.ErrorIs(t, adoption(store).Import(t.Context(), true), ErrHasData)

	emptied := memstore.New()
	require.ErrorIs(t, adoption(emptied).Import(t.Context(), false), ErrEmptied)
	require.ErrorIs(t, adoption(emptied).Revert(t.Context(), false), ErrEmptied)
	require.ErrorIs(t, adoption(emptied).Revert(t.Context(), true), ErrEmptied)
	requireTable(Adopted)

	// A restore into the emptied table is not an import that was interrupted.
	_, err := repair.BeginRestore(t.Context(), emptied, 3)
	require.NoError(t, err)
	restoring := rowsOf(t, emptied)
	require.ErrorIs(t, adoption(emptied).Import(t.Context(), false), repair.ErrRestoring)
	require.ErrorIs(t, adoption(emptied).Import(t.Context(), true), repair.ErrRestoring)
	require.ErrorIs(t, adoption(emptied).Revert(t.Context(), true), repair.ErrRestoring)
	require.Equal(t, restoring, rowsOf(t, emptied))
	requireTable(Adopted)
	for _, other := range []struct {
		table    Table
		to, back string
	}{
		{Importing, reclaimTable, adoptTable},
		{Partial, beginWriting, "ALTER TABLE kine RENAME COLUMN name_being_written TO name_in_sqlbrain"},
	} {
		exec(other.to)
		require.ErrorIs(t, adoption(emptied).Import(t.Context(), false), repair.ErrRestoring)
		require.ErrorIs(t, adoption(emptied).Revert(t.Context(), true), repair.ErrRestoring)
		require.Equal(t, restoring, rowsOf(t, emptied))
		requireTable(other.table)
		exec(other.back)
	}

	again := memstore.New()
	require.ErrorIs(t, adoption(&failing{again, 1}).Import(t.Context(), true), errCut)
	requireTable(Importing)
	require.NoError(t, adoption(again).Import(t.Context(), false), "it was begun")
	require.Equal(t, want, rowsOf(t, again))
	requireTable(Adopted)

	// Without rows of kine's there is nothing to fill the store with.
	exec("DELETE FROM kine")
	require.NoError(t, adoption(memstore.New()).Import(t.Context(), false))
	lost := memstore.New()
	b = lost.BeginBatchWrite()
	b.Put(coder.EncodeIndexKey([]byte("k")), coder.EncodeIndex(coder.Index{ModRevision: 2, CreateRevision: 2, Version: 1}))
	require.NoError(t, b.Commit(t.Context()))
	require.ErrorIs(t, adoption(lost).Revert(t.Context(), true), ErrEmptied, "the fence row is missing")
	require.NoError(t, adoption(memstore.New()).Revert(t.Context(), true), "a server that never led")
	requireTable(Used)
}

// TestImportWhoseTableIsGone: an interrupted import of a table that was dropped is not served. The store can be given
// up.
func TestImportWhoseTableIsGone(t *testing.T) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "state.db"))
	require.NoError(t, err)
	defer db.Close()
	store := memstore.New()
	adoption := &Adoption{DB: db, Store: store, Dialect: sqlstore.DialectSQLite, Logger: slog.New(slog.DiscardHandler)}
	_, err = repair.BeginImport(t.Context(), store, 3)
	require.NoError(t, err)

	for _, again := range []bool{false, true} {
		require.ErrorIs(t, adoption.Import(t.Context(), again), repair.ErrImporting)
		table, err := Inspect(t.Context(), sqlstore.DialectSQLite, db)
		require.NoError(t, err)
		require.Equal(t, Adopted, table)
	}
	require.NoError(t, adoption.Revert(t.Context(), false))
	require.ErrorIs(t, repair.RefuseUnfinished(t.Context(), store), repair.ErrReverting)
	table, err := Inspect(t.Context(), sqlstore.DialectSQLite, db)
	require.NoError(t, err)
	require.Equal(t, Used, table)
}

// lateWrite is a store in which a server writes just before the first commit.
type lateWrite struct {
	sqlstore.Store
	write func()
}

func (s *lateWrite) BeginBatchWrite() sqlstore.BatchWrite {
	if s.write != nil {
		s.write()
		s.write = nil
	}
	return s.Store.BeginBatchWrite()
}
