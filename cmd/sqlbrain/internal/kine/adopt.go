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
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

var (
	// ErrInUse: a kine writes to its table.
	ErrInUse = errors.New("a kine writes to the table: stop every kine that uses the database, and start again")
	// ErrBoth: the database has data of both programs.
	ErrBoth = errors.New("the database has a table kine with data, and data of sqlbrain too; which of them is valid cannot be known: " +
		"rename the table kine if its data is no longer needed")
	// ErrWritten: keys were written since the import.
	ErrWritten = errors.New("keys were written since kine's were imported: --keep-writes writes all keys back into kine's table, without it they would be lost")
	// ErrServed: a server wrote while its keys were written back.
	ErrServed = errors.New("sqlbrain wrote keys while they were written back: stop every process that serves the database, and start again")
	// ErrNothingAdopted: there is no import to go back from.
	ErrNothingAdopted = errors.New("the database has no table of kine whose keys were imported")

	errPartial  = errors.New("kine's table has a part of its rows, and sqlbrain has no data: writing the keys back was interrupted, and sqlbrain's rows were removed since")
	errLockLost = errors.New("the connection that keeps other processes from importing was lost")
)

const (
	// quietTime is for how long no row may be added before a kine counts as stopped. A Kubernetes
	// cluster writes several times a second.
	quietTime = 3 * time.Second
	// importPage is the number of keys that are read at a time, with values of up to some MiB.
	importPage = 100
	// progressEvery is the time between two lines of progress in the log.
	progressEvery = 2 * time.Second
)

const readPage = `SELECT kv.name_in_sqlbrain, kv.id, kv.created, kv.deleted, kv.create_revision, kv.lease, kv.value FROM kine AS kv
	JOIN (SELECT MAX(id) AS id FROM kine WHERE name_in_sqlbrain > ? GROUP BY name_in_sqlbrain ORDER BY name_in_sqlbrain LIMIT ?) AS newest
	ON newest.id = kv.id ORDER BY kv.name_in_sqlbrain`

// Adoption imports a table of kine's into the store of the same database, or undoes that.
type Adoption struct {
	DB      *sql.DB
	Store   sqlstore.Store
	Dialect string
	Logger  *slog.Logger
}

// Import makes the keys of kine's table those of the store, if that has not been done: every key
// with its value, its create and mod revision and its lease, at kine's newest revision. History
// below that counts as compacted. kine's table stays, and no kine can use it. An import that was
// interrupted begins anew. Processes that import at the same time wait for each other. Errors:
// ErrInUse, ErrBoth, repair.ErrRestoring, repair.ErrOvertaken, the database's.
func (a *Adoption) Import(ctx context.Context) error {
	return a.alone(ctx, func(held func() error) error {
		table, err := Look(ctx, a.Dialect, a.DB)
		if err != nil || table == Absent {
			return err
		}
		chain, unfinished, err := a.chain(ctx)
		if err != nil {
			return err
		}
		if table == Used {
			if err := a.claim(ctx, unfinished); err != nil {
				return err
			}
		} else if chain != nil {
			return nil // it has been imported
		} else if table == Partial {
			if err := a.complete(ctx); err != nil {
				return err
			}
		}
		return a.copy(ctx, held)
	})
}

// Revert empties the store and gives the table back to kine. If keys were written since the import, it does so only
// if keepWrites is set, and then writes the table anew, without history. Errors: ErrWritten, ErrServed,
// ErrNothingAdopted, repair.ErrRestoring, repair.ErrOvertaken, the database's.
func (a *Adoption) Revert(ctx context.Context, keepWrites bool) error {
	return a.alone(ctx, func(held func() error) error {
		table, err := Look(ctx, a.Dialect, a.DB)
		if err != nil {
			return err
		}
		if table != Adopted && table != Partial {
			return ErrNothingAdopted
		}
		chain, _, err := a.chain(ctx)
		if err != nil {
			return err
		}
		rev, err := revision(ctx, a.DB)
		if err != nil {
			return err
		}
		switch {
		case chain == nil, table == Adopted && chain.Revision == rev:
		case !keepWrites:
			return fmt.Errorf("%w (kine's newest revision is %d, sqlbrain's %d)", ErrWritten, rev, chain.Revision)
		default:
			if err := a.rewrite(ctx, table, chain, held); err != nil {
				return err
			}
			table = Partial
		}
		if err := repair.Discard(ctx, a.Store, chain); errors.Is(err, repair.ErrChainMoved) {
			return ErrServed
		} else if err != nil {
			return err
		}
		if table == Partial {
			if err := a.complete(ctx); err != nil {
				return err
			}
		}
		_, err = a.DB.ExecContext(ctx, returnTable)
		return err
	})
}

// chain returns the chain row of a store that can be served, nil if there is none. unfinished says that an import,
// or a return to kine, did not end, so that the store has nothing that kine's table has not.
func (a *Adoption) chain(ctx context.Context) (chain *coder.Chain, unfinished bool, err error) {
	switch err := repair.RefuseUnfinished(ctx, a.Store); {
	case errors.Is(err, repair.ErrImporting), errors.Is(err, repair.ErrReverting):
		return nil, true, nil
	case err != nil:
		return nil, false, err
	}
	raw, err := a.Store.Get(ctx, coder.ChainKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	c, err := coder.DecodeChain(raw)
	return &c, false, err
}

// claim takes the table from kine, unless one writes to it.
func (a *Adoption) claim(ctx context.Context, unfinished bool) error {
	switch empty, err := repair.IsEmpty(ctx, a.Store); {
	case err != nil:
		return err
	case !empty && !unfinished:
		return ErrBoth
	}
	before, err := revision(ctx, a.DB)
	if err != nil {
		return err
	}
	a.Logger.Info("found data of kine, looking whether a kine writes", "revision", before, "for", quietTime)
	if err := retry.Sleep(ctx, quietTime); err != nil {
		return err
	}
	now, err := revision(ctx, a.DB)
	if err != nil {
		return err
	}
	if now != before {
		return fmt.Errorf("%w (its revision rose from %d to %d)", ErrInUse, before, now)
	}
	if _, err := a.DB.ExecContext(ctx, adoptTable); err != nil {
		return fmt.Errorf("taking kine's table: %w", err)
	}
	return nil
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
			if row.deleted || last == "compact_rev_key" {
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
		a.Logger.Info("imported the keys of kine", "keys", keys, "revision", rev, "took", time.Since(started).Round(time.Millisecond))
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
		var createRevision, lease sql.NullInt64
		c := &r.record
		if err := rows.Scan(&r.name, &c.ModRevision, &created, &r.deleted, &createRevision, &lease, &c.Value); err != nil {
			return nil, err
		}
		// kine has no versions. Version 2 is any key that was changed since it was created.
		c.Key, c.CreateRevision, c.Version, c.Lease = []byte(r.name), createRevision.Int64, 2, lease.Int64
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
		err = errors.Join(err, conn.QueryRowContext(context.WithoutCancel(ctx), "SELECT RELEASE_LOCK(?)", name).Scan(&released))
	}()
	return f(func() error {
		var mine sql.NullBool
		if err := conn.QueryRowContext(ctx, "SELECT IS_USED_LOCK(?) = CONNECTION_ID()", name).Scan(&mine); err != nil || !mine.Bool {
			return errors.Join(errLockLost, err)
		}
		return nil
	})
}
