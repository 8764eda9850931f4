package kine

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var (
	// ErrInUse: a kine runs.
	ErrInUse = errors.New("a kine uses the table: stop every kine that uses the database, and start again")
	// ErrBoth: the database has data of both programs.
	ErrBoth = errors.New("the database has a table kine with data, and data of sqlbrain too; which of them is valid " +
		"cannot be known: " +
		"rename the table kine if its data is no longer needed")
	// ErrEmptied: the store has lost its fence row, or all rows.
	ErrEmptied = errors.New("the fence row of sqlbrain is missing, and kine's table has at most the keys that kine " +
		"left: restore a backup, " +
		"or, if sqlbrain's table is empty, let --import-again import kine's keys as they were")
	// ErrHasData: there is nothing to import again.
	ErrHasData = errors.New("the database has data of sqlbrain: --import-again is for one that was emptied since the " +
		"import")
	// ErrWritten: keys were written since the import.
	ErrWritten = errors.New("keys were written since kine's were imported: --keep-writes writes all keys back into " +
		"kine's table, without it they would be lost")
	// ErrServed: a server wrote while its keys were written back.
	ErrServed = errors.New("sqlbrain wrote keys while they were written back: stop every process that serves the " +
		"database, and start again")
	// ErrNothingAdopted: there is no import to go back from.
	ErrNothingAdopted = errors.New("the database has no table of kine whose keys were imported")

	errPartial = errors.New("kine's table has a part of its rows, and sqlbrain has no data: writing the keys back was " +
		"interrupted, and sqlbrain's rows were removed since")
	errLockLost = errors.New("the connection that keeps other processes from importing was lost")
)

const (
	// compactKey is the key in which kine keeps its compact revision, and kube-apiserver that of etcd.
	compactKey = "compact_rev_key"
	// importPage is the number of keys that are read at a time, with values of up to some MiB.
	importPage = 100
	// progressEvery is the time between two lines of progress in the log.
	progressEvery = 2 * time.Second
)

const readPage = `SELECT kv.name_being_imported, kv.id, kv.created, kv.deleted, kv.create_revision, kv.lease, kv.value FROM kine AS kv
	JOIN (SELECT MAX(id) AS id FROM kine WHERE name_being_imported > ? GROUP BY name_being_imported ORDER BY name_being_imported LIMIT ?) AS newest
	ON newest.id = kv.id ORDER BY kv.name_being_imported`

// Adoption imports a table of kine's into the store of the same database, or undoes that.
type Adoption struct {
	DB      *sql.DB
	Store   sqlstore.Store
	Dialect string
	Logger  *slog.Logger
}

// Import makes kine's table one that no kine can use, and the store one that may be served. If there is no table, it
// makes one. If the store is empty, it imports the keys of the table: every key with its value, its create and mod
// revision and its lease, at kine's newest revision. History below that counts as compacted. An import that was
// interrupted begins anew. One that ended is repeated only if again is set; then the store must be empty. Processes
// that import at the same time wait for each other. Errors: ErrInUse, ErrBoth, ErrEmptied, ErrHasData,
// repair.ErrRestoring, repair.ErrOvertaken, the database's.
func (a *Adoption) Import(ctx context.Context, again bool) error {
	return a.alone(ctx, func(held func() error) error {
		table, token, unfinished, err := a.state(ctx)
		if err != nil {
			return err
		}
		if token != nil && again {
			return ErrHasData
		}
		if table == Absent || table == Used {
			if table, err = a.take(ctx, table, unfinished); err != nil {
				return err
			}
		}
		switch {
		case token != nil && table == Partial:
			// The store is served, and may get newer keys than the table.
			_, err := a.DB.ExecContext(ctx, deleteMark)
			return err
		case token != nil:
			return nil
		case table == Partial:
			if err := a.complete(ctx); err != nil {
				return err
			}
		case table == Adopted:
			switch data, err := hasData(ctx, a.DB, table); {
			case err != nil:
				return err
			case !data:
				return repair.RefuseUnfinished(ctx, a.Store) // the table from which it was filled is gone
			case !again:
				return ErrEmptied
			}
			if _, err := a.DB.ExecContext(ctx, reclaimTable); err != nil {
				return err
			}
		}
		if err := a.copy(ctx, held); err != nil {
			return err
		}
		_, err = a.DB.ExecContext(ctx, adoptTable)
		return err
	})
}

// Revert empties the store and gives the table to kine. If keys were written since the import, it does so only
// if keepWrites is set, and then writes the table anew, without history. With keepWrites it makes a table if there is
// none. Errors: ErrWritten, ErrServed, ErrEmptied, ErrNothingAdopted, those of Import.
func (a *Adoption) Revert(ctx context.Context, keepWrites bool) error {
	return a.alone(ctx, func(held func() error) error {
		table, token, unfinished, err := a.state(ctx)
		if err != nil {
			return err
		}
		if table == Absent || table == Used {
			if token == nil || !keepWrites {
				return ErrNothingAdopted
			}
			if table, err = a.take(ctx, table, unfinished); err != nil {
				return err
			}
		}
		rev, err := revision(ctx, a.DB)
		if err != nil {
			return err
		}
		switch {
		case token == nil && table == Adopted && !unfinished:
			if err := a.refuseLost(ctx); err != nil {
				return err
			}
		case token == nil, table == Adopted && token.Revision == max(rev, 1): // 1: the revision of a new store
		case !keepWrites:
			return fmt.Errorf("%w (kine's newest revision is %d, sqlbrain's %d)", ErrWritten, rev, token.Revision)
		default:
			if err := a.rewrite(ctx, table, token, held); err != nil {
				return err
			}
			table = Partial
		}
		if table == Adopted {
			if _, err := a.DB.ExecContext(ctx, reclaimTable); err != nil {
				return err
			}
		}
		if err := repair.Discard(ctx, a.Store, token); errors.Is(err, repair.ErrFenceMoved) {
			return ErrServed
		} else if err != nil {
			return err
		}
		if table == Partial {
			if err := a.complete(ctx); err != nil {
				return err
			}
		}
		// A process that imports may have seen the table before the store was emptied, and taken the import for ended.
		table, token, _, err = a.state(ctx)
		if err == nil && table == Adopted && token == nil {
			_, err = a.DB.ExecContext(ctx, reclaimTable)
		}
		if err != nil {
			return err
		}
		_, err = a.DB.ExecContext(ctx, returnTable)
		return err
	})
}

// state returns the state of the table, and the fence row of a store that can be served, nil if there is none.
// unfinished says that an import, or a return to kine, did not end, so that the store has nothing that kine's table has
// not. It makes a table Adopted whose import ended before the process could do that.
func (a *Adoption) state(ctx context.Context) (table Table, token *coder.FenceToken, unfinished bool, err error) {
	if table, err = Inspect(ctx, a.Dialect, a.DB); err != nil {
		return table, nil, false, err
	}
	switch err := repair.RefuseUnfinished(ctx, a.Store); {
	case errors.Is(err, repair.ErrImporting), errors.Is(err, repair.ErrReverting):
		return table, nil, true, nil
	case err != nil:
		return table, nil, false, err
	}
	if token, err = a.token(ctx); err != nil || token == nil || table != Importing {
		return table, token, false, err
	}
	rev, err := revision(ctx, a.DB)
	if err != nil {
		return table, nil, false, err
	}
	data, err := hasData(ctx, a.DB, table)
	if err != nil {
		return table, nil, false, err
	}
	if data && token.Revision < rev {
		return table, nil, false, ErrBoth // served before kine's keys were imported
	}
	_, err = a.DB.ExecContext(ctx, adoptTable)
	return Adopted, token, false, err
}

// refuseLost returns ErrEmptied if the store, which has no fence row, or kine's table has keys: which of them are valid
// cannot be known. A server that stopped before it led has left neither.
func (a *Adoption) refuseLost(ctx context.Context) error {
	if data, err := hasData(ctx, a.DB, Adopted); err != nil {
		return err
	} else if data {
		return ErrEmptied
	}
	_, err := repair.Examine(ctx, a.Store)
	switch {
	case errors.Is(err, repair.ErrNothingToRecover):
		return nil
	case err != nil:
		return err
	}
	return ErrEmptied
}

// token returns the fence row, nil if there is none.
func (a *Adoption) token(ctx context.Context) (*coder.FenceToken, error) {
	token, _, err := fence.LoadToken(ctx, a.Store)
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return nil, nil
	}
	return &token, err
}

// copy fills the store with the keys of the table.
func (a *Adoption) copy(ctx context.Context, held func() error) error {
	rev, err := revision(ctx, a.DB)
	if err != nil {
		return err
	}
	a.Logger.Info("importing the keys of kine", "revision", rev)
	into, err := repair.BeginImport(ctx, a.Store, rev)
	if err != nil {
		return err
	}
	started := time.Now()
	logged, last, leases := started, "", make(map[int64]bool)
	for {
		rows, err := a.page(ctx, last)
		if err == nil {
			err = held()
		}
		if err != nil {
			return fmt.Errorf("reading kine's table after the key %.100q: %w", last, err)
		}
		if len(rows) == 0 {
			break
		}
		for _, row := range rows {
			last = row.name
			if row.deleted || last == compactKey {
				continue
			}
			if row.record.Lease > 0 && row.record.Lease <= lease.MaxTTL {
				leases[row.record.Lease] = true
			}
			if err := into.Put(ctx, &row.record); err != nil {
				return fmt.Errorf("the key %.100q: %w", last, err)
			}
		}
		if now := time.Now(); now.Sub(logged) > progressEvery {
			logged = now
			a.Logger.Info("importing the keys of kine", "keys", into.Keys(), "last", last)
		}
	}
	for id := range leases { // kine's are named by their TTL
		if err := into.Lease(ctx, coder.Lease{ID: id, TTL: id}); err != nil {
			return err
		}
	}
	keys, rev, err := into.Finish(ctx, rev, nil)
	if err == nil {
		a.Logger.Info("imported the keys of kine", "keys", keys, "revision", rev, "took",
			time.Since(started).Round(time.Millisecond))
	}
	return err
}

// row is a row of kine's table.
type row struct {
	name    string
	deleted bool
	record  coder.Record
}

// page returns the newest rows of the keys after last.
func (a *Adoption) page(ctx context.Context, last string) (page []row, err error) {
	rows, err := a.DB.QueryContext(ctx, readPage, last, importPage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var r row
		var created bool
		var createRevision, leaseID sql.NullInt64
		c := &r.record
		if err := rows.Scan(&r.name, &c.ModRevision, &created, &r.deleted, &createRevision, &leaseID, &c.Value); err != nil {
			return nil, err
		}
		// kine has no versions. Version 2 is any key that was changed since it was created.
		c.Key, c.CreateRevision, c.Version, c.Lease = []byte(r.name), createRevision.Int64, 2, leaseID.Int64
		if created || c.CreateRevision == 0 {
			c.CreateRevision, c.Version = c.ModRevision, 1
		}
		page = append(page, r)
	}
	return page, rows.Err()
}

// alone calls f while no other process is in alone. held returns an error if that can no longer
// be known. An SQLite file has one process, as the store is open.
func (a *Adoption) alone(ctx context.Context, f func(held func() error) error) (err error) {
	if a.Dialect == sqlstore.DialectSQLite {
		return f(func() error { return nil })
	}
	conn, err := a.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	// The lock is the connection's, which is idle while f works.
	if _, err := conn.ExecContext(ctx, "SET SESSION wait_timeout = DEFAULT"); err != nil {
		return err
	}
	var database string
	if err := conn.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&database); err != nil {
		return err
	}
	name := fmt.Sprintf("sqlbrain-kine-%x", sha256.Sum256([]byte(database)))[:64]
	var got sql.NullInt64
	for got.Int64 != 1 {
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, 5)", name).Scan(&got); err != nil {
			return err
		}
		if got.Int64 != 1 {
			a.Logger.Info("another process imports the keys of kine, waiting for it")
		}
	}
	defer func() {
		var released sql.NullInt64
		err = errors.Join(err, conn.QueryRowContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK(?)",
			name).Scan(&released))
	}()
	return f(func() error {
		var mine sql.NullBool
		if err := conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", name).Scan(&mine); err != nil ||
			!mine.Bool {
			return errors.Join(errLockLost, err)
		}
		return nil
	})
}
