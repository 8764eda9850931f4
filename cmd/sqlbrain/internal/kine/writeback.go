package kine

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"time"
	"unicode"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// While the rows are written anew, the column of keys has another name, and the row compact_rev_key is
	// missing, so that no program takes a part for the whole.
	beginWriting = "ALTER TABLE kine RENAME COLUMN name_in_sqlbrain TO name_being_written"
	endWriting   = "ALTER TABLE kine RENAME COLUMN name_being_written TO name_being_imported"
	deleteMark   = "DELETE FROM kine WHERE name_being_written = 'compact_rev_key'"
	findMark     = "SELECT COUNT(*) FROM kine WHERE name_being_written = 'compact_rev_key'"

	oldestRow  = "SELECT COALESCE(MIN(id), 0) FROM kine"
	deleteRows = "DELETE FROM kine WHERE id < ?"
	// Rows that are not created name the revision that did. A previous revision, of which there is no row, would be that
	// of another key if one transaction wrote both: kine's compaction would delete it. Without one, kine's unique index
	// finds keys that the table takes for the same.
	insertRow = `INSERT INTO kine (id, name_being_written, created, deleted, create_revision, prev_revision, lease, value, old_value)
		VALUES (?, ?, ?, 0, ?, ?, ?, ?, NULL)`

	// deleteAtOnce is how many ids one statement that empties the table covers.
	deleteAtOnce = 10_000

	maxLease  = math.MaxInt32 // of the column on MySQL, in seconds
	duplicate = 1062          // MySQL's error for a second row of a unique index
)

// errTwin: MySQL compares kine's keys without regard to case and trailing spaces.
var errTwin = errors.New("kine's table takes it for another key, which differs in case or trailing spaces")

// rewrite makes the table hold the keys of the store at token's revision, with their revisions and the life times of
// their leases, and no history: kine answers requests for older revisions as compacted. It may be
// interrupted, and then begins anew.
func (a *Adoption) rewrite(ctx context.Context, table Table, token *coder.FenceToken, held func() error) error {
	if table == Adopted {
		if _, err := a.DB.ExecContext(ctx, beginWriting); err != nil {
			return fmt.Errorf("taking kine's table: %w", err)
		}
	}
	if _, err := a.DB.ExecContext(ctx, deleteMark); err != nil {
		return err
	}
	leases, err := a.leases(ctx)
	if err != nil {
		return err
	}
	if err := a.empty(ctx); err != nil {
		return fmt.Errorf("emptying kine's table: %w", err)
	}
	a.Logger.Info("writing the keys into kine's table", "revision", token.Revision)
	started := time.Now()
	w := rewriter{logged: started, leases: leases, ids: make(map[int64]bool), next: token.Revision + 2}
	var page []coder.Record
	lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
	for r, err := range a.Store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		key, err := coder.DecodeIndexKey(r.Key)
		if err != nil {
			return err
		}
		x, err := coder.DecodeIndex(r.Value)
		if err != nil {
			return fmt.Errorf("the key %.100q: %w", key, err)
		}
		if x.Tombstone || string(key) == compactKey {
			continue
		}
		if page = append(page, *x.Record(key)); len(page) < importPage {
			continue
		}
		if err := errors.Join(a.write(ctx, &w, page), held()); err != nil {
			return err
		}
		page = page[:0]
	}
	if err := errors.Join(a.write(ctx, &w, page), held()); err != nil {
		return err
	}
	// The id is above all revisions that clients have seen: kine's next ones are, too.
	if _, err := a.DB.ExecContext(ctx, insertRow, token.Revision+1, compactKey, 0, 0, token.Revision, 0,
		[]byte{}); err != nil {
		return err
	}
	a.Logger.Info("wrote the keys into kine's table", "keys", w.keys, "revision", token.Revision, "took",
		time.Since(started).Round(time.Millisecond))
	return nil
}

// complete makes a table that was rewritten one that can be imported, or returned to kine. It fails
// if it has only a part of its rows.
func (a *Adoption) complete(ctx context.Context) error {
	var marks int
	if err := a.DB.QueryRowContext(ctx, findMark).Scan(&marks); err != nil {
		return err
	}
	if marks == 0 {
		return errPartial
	}
	_, err := a.DB.ExecContext(ctx, endWriting)
	return err
}

// rewriter is the state of one rewrite.
type rewriter struct {
	leases map[int64]int64 // life times, by id
	ids    map[int64]bool  // revisions that are the id of a row
	next   int64           // id of the next key of a revision that has a row: kine has one for each
	keys   int
	logged time.Time
}

// id returns the id of the row of a key of that revision.
func (w *rewriter) id(revision int64) int64 {
	if !w.ids[revision] {
		w.ids[revision] = true
		return revision
	}
	w.next++
	return w.next - 1
}

// write writes a page of keys, whose values it reads.
func (a *Adoption) write(ctx context.Context, w *rewriter, page []coder.Record) error {
	if len(page) == 0 {
		return nil
	}
	keys := make([][]byte, len(page))
	for i, r := range page {
		keys[i] = coder.EncodeVersionKey(r.Key, r.ModRevision)
	}
	values, err := a.Store.MultiGet(ctx, keys)
	if err != nil {
		return err
	}
	err = a.inTransaction(ctx, func(tx *sql.Tx) error {
		insert, err := tx.PrepareContext(ctx, insertRow)
		if err != nil {
			return err
		}
		defer insert.Close() //nolint:errcheck // the transaction ends next
		for i, r := range page {
			if values[i] == nil {
				return fmt.Errorf("the key %.100q has no value at revision %d: is a server running?", r.Key, r.ModRevision)
			}
			v, err := coder.DecodeVersion(r.Key, r.ModRevision, values[i])
			if err != nil {
				return fmt.Errorf("the key %.100q: %w", r.Key, err)
			}
			// MariaDB would write other characters.
			if a.Dialect != sqlstore.DialectSQLite &&
				bytes.ContainsFunc(r.Key, func(c rune) bool { return c > unicode.MaxASCII }) {
				return fmt.Errorf("writing the key %.100q: kine's table takes ASCII only", r.Key)
			}
			created, createRevision := r.CreateRevision == r.ModRevision, r.CreateRevision
			if created {
				createRevision = 0
			}
			_, err = insert.ExecContext(ctx, w.id(r.ModRevision), string(r.Key), created, createRevision, 0,
				min(w.leases[r.Lease], maxLease), v.Value)
			if refused, ok := errors.AsType[*mysql.MySQLError](err); ok && refused.Number == duplicate {
				err = errTwin
			}
			if err != nil {
				return fmt.Errorf("writing the key %.100q: %w", r.Key, err)
			}
		}
		return nil
	})
	w.keys += len(page)
	if now := time.Now(); err == nil && now.Sub(w.logged) > progressEvery {
		w.logged = now
		a.Logger.Info("writing the keys into kine's table", "keys", w.keys)
	}
	return err
}

// leases returns the life time of each lease, in seconds.
func (a *Adoption) leases(ctx context.Context) (map[int64]int64, error) {
	ttls := make(map[int64]int64)
	lo, hi := coder.LeaseBounds()
	for r, err := range a.Store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, err
		}
		l, err := coder.DecodeLease(r.Key, r.Value)
		if err != nil {
			return nil, err
		}
		ttls[l.ID] = l.TTL
	}
	return ttls, nil
}

// empty removes all rows, some at a time.
func (a *Adoption) empty(ctx context.Context) error {
	newest, err := revision(ctx, a.DB)
	if err != nil {
		return err
	}
	var oldest int64
	if err := a.DB.QueryRowContext(ctx, oldestRow).Scan(&oldest); err != nil {
		return err
	}
	for below := oldest; below <= newest; {
		below += deleteAtOnce
		if _, err := a.DB.ExecContext(ctx, deleteRows, below); err != nil {
			return err
		}
	}
	return nil
}

// inTransaction commits what f does, or nothing.
func (a *Adoption) inTransaction(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := a.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	if err := f(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}
