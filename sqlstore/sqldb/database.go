package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Database is the connection pools of one database, with or without the table.
// Safe for concurrent use.
type Database struct {
	url    *sqlstore.URL
	logger *slog.Logger
	engine Engine
	pools  Pools
	// read serves queries, write serves commits and everything else that changes the
	// database.
	read, write           *sqlx.DB
	lateReads, lateWrites drops

	mu   sync.Mutex
	lock io.Closer // see Lock
}

// NewDatabase makes the pools of the database u names. It does not connect.
func NewDatabase(u *sqlstore.URL, logger *slog.Logger, engine Engine, pools Pools) *Database {
	pool := func(connector driver.Connector, conns int) *sqlx.DB {
		p := sql.OpenDB(connector)
		p.SetMaxOpenConns(conns)
		p.SetMaxIdleConns(conns)
		p.SetConnMaxIdleTime(pools.MaxIdleTime)
		p.SetConnMaxLifetime(pools.MaxLifetime)
		return sqlx.NewDb(p, engine.Name())
	}
	return &Database{
		url: u, logger: logger, engine: engine, pools: pools,
		read: pool(pools.Read, pools.ReadConns), write: pool(pools.Write, pools.WriteConns),
	}
}

// spare is how many connections of each pool KeepSpare keeps: the one that is in use most of the time, and another one.
const spare = 2

// spareSoon is when KeepSpare makes them after the start, which needs few connections itself.
const spareSoon = time.Second

// spareWait bounds how long it waits for both. A connection that takes longer to make is finished all the same.
const spareWait = time.Second

// KeepSpare uses as many connections of each pool at a time, every so often, until ctx ends, so that the pools do not
// close the last ones that are idle. A call that finds the first one in use, or broken, would need ten round trips for
// a new one.
func (db *Database) KeepSpare(ctx context.Context, every time.Duration) {
	for pause := min(spareSoon, every); retry.Sleep(ctx, pause) == nil; pause = every {
		var both sync.WaitGroup
		for _, pool := range []*sqlx.DB{db.read, db.write} {
			if stats := pool.Stats(); stats.InUse+spare > stats.MaxOpenConnections {
				continue // they are in use, and calls may wait for one
			}
			both.Go(func() {
				// Not longer: a connection that is held while it waits for another one is missing elsewhere.
				bounded, cancel := context.WithTimeout(ctx, min(spareWait, every))
				defer cancel()
				for range spare {
					conn, err := pool.Conn(bounded)
					if err != nil {
						return // a call that needs one reports it
					}
					defer conn.Close() //nolint:errcheck // it only returns to the pool
					if conn.PingContext(bounded) != nil {
						return
					}
				}
			})
		}
		both.Wait()
	}
}

// SQL returns the pool that may write: for migrations and diagnosis. On SQLite
// it has one connection.
func (db *Database) SQL() *sql.DB { return db.write.DB }

// Read and Write return the pools, for the engine.
func (db *Database) Read() *sqlx.DB  { return db.read }
func (db *Database) Write() *sqlx.DB { return db.write }

// DialectName returns sqlstore.DialectMySQL or another.
func (db *Database) DialectName() string { return db.engine.Name() }

// URL returns what the database was opened with.
func (db *Database) URL() *sqlstore.URL { return db.url }

// DropIdle closes the connections that are not in use.
func (db *Database) DropIdle() {
	dropIdle(db.read, db.pools.ReadConns)
	dropIdle(db.write, db.pools.WriteConns)
}

func dropIdle(pool *sqlx.DB, conns int) {
	pool.SetMaxIdleConns(-1)
	pool.SetMaxIdleConns(conns)
}

// lateAfter is how long a statement without a deadline of its own runs before the end of its context is a sign that the
// network has lost its connection.
const lateAfter = time.Second

// dropPause bounds the first and the longest pause between two drops of one pool: an overloaded database must not have
// to accept connections after every statement that it answers too late.
var dropPause = retry.Backoff{Min: 2 * time.Second, Max: time.Minute}

// drops spaces out the drops of one pool.
type drops struct {
	mu    sync.Mutex
	count int // in a row
	last  time.Time
	pause time.Duration // since last
}

// due reports whether the pool may be dropped now. The pause doubles until none was due for as long as the longest one.
func (d *drops) due() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	since := time.Since(d.last)
	if since < d.pause {
		return false
	}
	if since >= d.pause+dropPause.Max {
		d.count = 0
	}
	d.count++
	d.last, d.pause = time.Now(), dropPause.Pause(d.count)
	return true
}

// dropLate closes the connections of a pool that are not in use, if a statement that began on one of them at start has
// timed out. The network may have lost all connections without a sign. Then each of them would cost another timeout.
func (db *Database) dropLate(ctx context.Context, pool *sqlx.DB, start time.Time) {
	if !db.pools.Remote || ctx.Err() == nil ||
		!errors.Is(ctx.Err(), context.DeadlineExceeded) && time.Since(start) < lateAfter {
		return
	}
	switch {
	case pool == db.write && db.lateWrites.due():
		dropIdle(pool, db.pools.WriteConns)
	case pool == db.read && db.lateReads.due():
		dropIdle(pool, db.pools.ReadConns)
	}
}

// Lock keeps other processes, and other Databases of this one, from locking the
// same SQLite file until Close. It returns sqlstore.ErrInUse, naming the holder, if
// one of them has locked it. A process that only reads, or that relies on SQLite's
// own locks, need not lock. On servers, which many processes use, it does nothing.
func (db *Database) Lock() (err error) {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.lock == nil {
		db.lock, err = db.engine.Lock()
	}
	return err
}

// Close closes the pools. Connections in use close when their call is done. The
// lock is released last.
func (db *Database) Close() error {
	err := errors.Join(db.read.Close(), db.write.Close())
	if db.DialectName() != sqlstore.DialectSQLite {
		// A server's connection that cannot take leave of it was lost before, and is closed all the same. The
		// driver has several errors for that, some without a name.
		err = nil
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.lock != nil {
		err = errors.Join(err, db.lock.Close())
		db.lock = nil
	}
	return err
}

// Check verifies that the engine is one a store can work on: reachable, not
// read-only, its sessions strict, the table there and of the right types. Its
// error says what is wrong and what to do; it wraps sqlstore.ErrUnavailable if
// trying again may help, sqlstore.ErrUnfit if something must be changed.
func (db *Database) Check(ctx context.Context) (Info, error) {
	conn, err := db.write.Connx(ctx)
	if err != nil {
		return Info{}, fmt.Errorf("connect to %s: %w", db.url, RolledBack(ctx, db.engine, err))
	}
	defer conn.Close() // only returns it to the pool
	info, err := db.engine.Check(ctx, conn)
	if err != nil && !errors.Is(err, sqlstore.ErrUnfit) {
		err = RolledBack(ctx, db.engine, err)
	}
	if err != nil {
		return Info{}, fmt.Errorf("check %s: %w", db.url, err)
	}
	return info, nil
}

// NoTable and OtherTable are the parts of Check's errors about the table.
const (
	NoTable    = "table object does not exist: apply the migrations (sqlbrain migrate up)"
	OtherTable = "it was not made by the migrations; use another database, or move the table out of the way and apply " +
		"them (sqlbrain migrate up)"
)

// Unfit returns an error that wraps sqlstore.ErrUnfit.
func Unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", sqlstore.ErrUnfit, fmt.Sprintf(format, args...))
}
