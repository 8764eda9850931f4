package durable

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Archive reads the history out of a database. Compaction deletes history, so the archive copies it before a
// compaction is asked for: see Gate. On SQLite a trigger puts what is deleted aside, because another process that has
// the file open while a node is killed and starts again would change what the node finds.
type Archive struct {
	datastore string
	db        *sqldb.Database // nil on SQLite: opened to read

	mu     sync.Mutex
	newest int64             // the log rows up to it have been copied, and the versions that they name
	copied map[string][]byte // rows by their keys
}

const valueOf = "SELECT object_value FROM object WHERE internal_key = ?"

const readWait = eventually.Deadline

// NewArchive makes the schema in an empty database, and on SQLite the trigger.
func NewArchive(t testing.TB, datastore string) *Archive {
	t.Helper()
	out := harness.Run(t, readWait, "", harness.Sqlbrain(t), "migrate", "up", "--datastore", datastore)
	require.Zero(t, out.Code, "sqlbrain migrate up: %s%s", out.Stdout, out.Stderr)
	a := &Archive{datastore: datastore, copied: map[string][]byte{}}
	db := a.open(t)
	if db.DialectName() != sqlstore.DialectSQLite {
		a.db = db
		t.Cleanup(func() { assert.NoError(t, db.Close()) })
		return a
	}
	for _, statement := range []string{
		"CREATE TABLE deleted (internal_key BLOB NOT NULL, object_value BLOB NOT NULL)",
		"CREATE TRIGGER keep_deleted BEFORE DELETE ON object FOR EACH ROW " +
			"BEGIN INSERT INTO deleted VALUES (OLD.internal_key, OLD.object_value); END",
	} {
		_, err := db.SQL().ExecContext(t.Context(), statement)
		require.NoError(t, err, statement)
	}
	require.NoError(t, db.Close())
	return a
}

// copy copies the log rows that it has not got yet, and the versions that they name. A compaction at a revision that
// is visible removes no others, and no other compaction is under way that could.
func (a *Archive) copy(ctx context.Context) error {
	if a.db == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	var versions []any // keys
	newest := a.newest
	lo, hi := coder.LogBounds(a.newest+1, math.MaxInt64)
	err := rows(ctx, a.db.SQL(), "object", lo, hi, func(key, value []byte) error {
		a.copied[string(key)] = value
		changes, err := coder.DecodeLog(value)
		for _, c := range changes {
			if newest = max(newest, c.Revision); c.Tombstone {
				continue
			}
			versions = append(versions, coder.EncodeVersionKey(c.Key, c.Revision))
		}
		return err
	})
	if err != nil {
		return err
	}
	// Few statements: the client that compacts waits for less than a second.
	for keys := range slices.Chunk(versions, 200) {
		found := 0
		err := rowsWhere(ctx, a.db.SQL(), "object", "internal_key IN (?"+strings.Repeat(", ?", len(keys)-1)+")", keys,
			func(key, value []byte) error {
				a.copied[string(key)] = value
				found++
				return nil
			})
		if err != nil {
			return err
		}
		if found != len(keys) {
			return fmt.Errorf("%d of %d version rows that the log names are there", found, len(keys))
		}
	}
	a.newest = newest
	return nil
}

func (a *Archive) open(t testing.TB) *sqldb.Database {
	t.Helper()
	u, err := sqlstore.ParseURL(a.datastore)
	require.NoError(t, err)
	db, err := engines.OpenDB(u, sqlstore.Options{})
	require.NoError(t, err)
	return db
}

// Requests returns the durable writes of the table, as the model's requests in the
// order of their revisions. The clients' reports only decide what the table does not
// show: see deletion and compactions.
func (a *Archive) Requests(t testing.TB, reports []report.ClientReport) []model.EtcdRequest {
	t.Helper()
	h := a.read(t)
	seen := newSeen(reports)
	var requests []model.EtcdRequest
	granted := map[int64]bool{}
	for i, changes := range h.revisions {
		revision := int64(i) + 2 // an empty store is at 1
		ops, leases, err := h.operations(changes)
		require.NoError(t, err)
		for _, op := range ops {
			if id := op.Put.LeaseID; id != 0 && !granted[id] {
				granted[id] = true
				requests = append(requests, model.EtcdRequest{Type: model.LeaseGrant,
					LeaseGrant: &model.LeaseGrantRequest{LeaseID: id}})
			}
		}
		if lease := seen.revoked(revision, ops, leases); lease != 0 {
			requests = append(requests, model.EtcdRequest{Type: model.LeaseRevoke,
				LeaseRevoke: &model.LeaseRevokeRequest{LeaseID: lease}})
			continue
		}
		requests = append(requests, model.EtcdRequest{Type: model.Txn, Txn: &model.TxnRequest{OperationsOnSuccess: ops}})
	}
	// The model must count revisions as the log does.
	state := model.NewReplay(requests)
	last := int64(len(h.revisions)) + 1
	reached, err := state.StateForRevision(last)
	require.NoError(t, err)
	require.Equal(t, last, reached.Revision)
	_, err = state.StateForRevision(last + 1)
	require.Error(t, err, "the model reaches a revision that the log does not have")
	return append(requests, seen.compactions(h.compacted)...)
}

// history is what the rows hold.
type history struct {
	revisions [][]coder.Change // from revision 2 on
	versions  map[version]*coder.Record
	compacted int64 // the compaction mark
}

type version struct {
	key      string
	revision int64
}

func (a *Archive) read(t testing.TB) *history {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readWait)
	defer cancel()
	h := &history{versions: map[version]*coder.Record{}}
	if a.db != nil {
		require.NoError(t, h.read(ctx, a.db.SQL(), a.rows))
		return h
	}
	db := a.open(t)
	require.NoError(t, errors.Join(h.read(ctx, db.SQL(), a.rows), db.Close()))
	return h
}

// rows calls each for the rows of [lo, hi), in any order, those that were deleted included.
func (a *Archive) rows(ctx context.Context, db *sql.DB, lo, hi []byte, each func(key, value []byte) error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := map[string][]byte{}
	for key, value := range a.copied {
		if key >= string(lo) && key < string(hi) {
			all[key] = value
		}
	}
	tables := []string{"object"}
	if a.db == nil {
		tables = append(tables, "deleted")
	}
	for _, table := range tables {
		if err := rows(ctx, db, table, lo, hi, func(key, value []byte) error {
			if before, ok := all[string(key)]; ok && !bytes.Equal(before, value) {
				return fmt.Errorf("the content of row %x has changed from %x to %x", key, before, value)
			}
			all[string(key)] = value
			return nil
		}); err != nil {
			return err
		}
	}
	for key, value := range all {
		if err := each([]byte(key), value); err != nil {
			return err
		}
	}
	return nil
}

// reader is Archive.rows.
type reader func(ctx context.Context, db *sql.DB, lo, hi []byte, each func(key, value []byte) error) error

func (h *history) read(ctx context.Context, db *sql.DB, rows reader) error {
	lo, hi := coder.VersionBounds([]byte{0}, []byte{0})
	err := rows(ctx, db, lo, hi, func(key, value []byte) error {
		raw, revision, err := coder.DecodeVersionKey(key)
		if err != nil {
			return err
		}
		r, err := coder.DecodeVersion(raw, revision, value)
		h.versions[version{string(raw), revision}] = r
		return err
	})
	if err != nil {
		return err
	}
	var changes []coder.Change
	lo, hi = coder.LogBounds(1, math.MaxInt64)
	err = rows(ctx, db, lo, hi, func(_, value []byte) error {
		c, err := coder.DecodeLog(value)
		changes = append(changes, c...)
		return err
	})
	if err != nil {
		return err
	}
	if err := h.group(changes); err != nil {
		return err
	}
	return h.readMeta(ctx, db)
}

// rows calls each for the rows of [lo, hi) in a table.
func rows(ctx context.Context, db *sql.DB, table string, lo, hi []byte, each func(key, value []byte) error) error {
	return rowsWhere(ctx, db, table, "internal_key >= ? AND internal_key < ?", []any{lo, hi}, each)
}

func rowsWhere(ctx context.Context, db *sql.DB, table, condition string, args []any,
	each func(key, value []byte) error) (err error) {
	found, err := db.QueryContext(ctx, "SELECT internal_key, object_value FROM "+table+" WHERE "+condition, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, found.Close()) }()
	for found.Next() {
		var key, value []byte
		if err := found.Scan(&key, &value); err != nil {
			return err
		}
		if err := each(key, value); err != nil {
			return err
		}
	}
	return found.Err()
}

// group puts the changes into revisions: there must be no gap, and no change
// may be there twice.
func (h *history) group(changes []coder.Change) error {
	slices.SortFunc(changes, func(a, b coder.Change) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), cmp.Compare(a.Sub, b.Sub))
	})
	for _, c := range changes {
		newest := int64(len(h.revisions)) + 1
		switch {
		case c.Revision == newest && len(h.revisions) > 0:
			last := h.revisions[len(h.revisions)-1]
			if c.Sub == last[len(last)-1].Sub {
				return fmt.Errorf("the log has change %d.%d twice", c.Revision, c.Sub)
			}
			h.revisions[len(h.revisions)-1] = append(last, c)
		case c.Revision == newest+1:
			h.revisions = append(h.revisions, []coder.Change{c})
		default:
			return fmt.Errorf("the log goes from revision %d to %d", newest, c.Revision)
		}
	}
	return nil
}

// readMeta checks the log against the fence row, and reads the compaction mark.
func (h *history) readMeta(ctx context.Context, db *sql.DB) error {
	value := func(key []byte) (v []byte, err error) {
		err = db.QueryRowContext(ctx, valueOf, key).Scan(&v)
		return v, err
	}
	v, err := value(coder.FenceKey())
	if err != nil {
		return fmt.Errorf("fence row: %w", err)
	}
	token, err := coder.DecodeFenceToken(v)
	if err != nil {
		return err
	}
	if newest := int64(len(h.revisions)) + 1; token.Revision != newest {
		return fmt.Errorf("the fence row is at revision %d, the log at %d", token.Revision, newest)
	}
	v, err = value(coder.CompactKey())
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("compaction mark: %w", err)
	}
	h.compacted, err = coder.DecodeInt64(v)
	return err
}

// operations returns a revision's changes as the model's operations, and the
// lease of what each deletion deleted.
func (h *history) operations(changes []coder.Change) (ops []model.EtcdOperation, leases []int64, err error) {
	for _, c := range changes {
		r := h.versions[version{string(c.Key), c.Revision}]
		if r == nil && !c.Tombstone {
			return nil, nil, fmt.Errorf("the log has a put of %q at %d, but no such version row is there", c.Key, c.Revision)
		}
		if r != nil && (r.Tombstone != c.Tombstone || !bytes.Equal(r.Key, c.Key)) {
			return nil, nil, fmt.Errorf("log %+v and version row %+v contradict each other", c, r)
		}
		if !c.Tombstone {
			ops = append(ops, model.EtcdOperation{Type: model.PutOperation, Put: model.PutOptions{
				Key: string(c.Key), Value: model.ToValueOrHash(string(r.Value)), LeaseID: r.Lease,
			}})
			continue
		}
		before := h.versions[version{string(c.Key), c.PrevRevision}]
		if before == nil {
			return nil, nil, fmt.Errorf("%q is deleted at %d, but its version %d is not there", c.Key, c.Revision,
				c.PrevRevision)
		}
		leases = append(leases, before.Lease)
		ops = append(ops, model.EtcdOperation{Type: model.DeleteOperation, Delete: model.DeleteOptions{Key: string(c.Key)}})
	}
	return ops, leases, nil
}
