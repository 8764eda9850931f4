package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/jmoiron/sqlx"
)

// Database is the connection pools of one database, with or without the table.
// Safe for concurrent use.
type Database struct {
	url     *URL
	logger  *slog.Logger
	dialect dialect
	// read serves queries, write serves commits and everything else that
	// changes the database.
	read, write *sqlx.DB
	// primary is nil on SQLite.
	primary *primary

	mu   sync.Mutex
	lock *fileLock // of an SQLite file, see Lock
}

// Info is what Check found out about the engine.
type Info struct {
	// Product and Version are the engine's own, such as "MariaDB" and "10.11.6".
	Product, Version string
	// MaxPacket is the largest packet, in bytes, that the server takes; 0 if it
	// has no such limit.
	MaxPacket int
	// grouped: the server is configured for Group Replication.
	grouped bool
	// maxRow bounds key plus value of a row, maxTx the bytes of a batch (0: none).
	maxRow, maxTx int
}

// OpenDB makes the pools of the database u names. It dials nothing; SQLite's
// directory is created (mode 0700) if it does not exist.
func OpenDB(u *URL, o Options) (*Database, error) {
	o = o.withDefaults(u.Dialect)
	var d dialect
	switch u.Dialect {
	case DialectMySQL:
		d = &mysqlDialect{}
	case DialectSQLite:
		d = &sqliteDialect{}
	default:
		return nil, fmt.Errorf("%w: unknown dialect %q", ErrURL, u.Dialect)
	}
	connectors, err := d.connectors(u)
	if err != nil {
		return nil, err
	}
	if o.WrapConnector != nil {
		for i, c := range connectors {
			connectors[i] = o.WrapConnector(c)
		}
	}
	hosts := newHosts(u, connectors)
	db := &Database{url: u, logger: o.Logger, dialect: d}
	if u.Dialect == DialectMySQL {
		db.primary = &primary{logger: o.Logger, equals: u.scheme == "tidb", dropIdle: func() {
			for pool, conns := range map[*sqlx.DB]int{db.read: o.MaxOpenConns, db.write: d.writeConns()} {
				pool.SetMaxIdleConns(-1)
				pool.SetMaxIdleConns(conns)
			}
		}}
	}
	pool := func(write bool, conns int) *sqlx.DB {
		p := sql.OpenDB(&sessionConnector{hosts: hosts, statements: d.session(write), mayRefuse: d.mayRefuse, primary: db.primary})
		p.SetMaxOpenConns(conns)
		p.SetMaxIdleConns(conns)
		if u.Dialect == DialectMySQL {
			// Servers and the proxies before them drop idle connections, and a
			// new primary is found by dialling again.
			p.SetConnMaxIdleTime(5 * time.Minute)
			p.SetConnMaxLifetime(30 * time.Minute)
		}
		return sqlx.NewDb(p, d.name())
	}
	db.read, db.write = pool(false, o.MaxOpenConns), pool(true, d.writeConns())
	return db, nil
}

// SQL returns the pool that may write: for migrations and diagnosis. On SQLite
// it has one connection.
func (db *Database) SQL() *sql.DB { return db.write.DB }

// DialectName returns DialectMySQL or DialectSQLite.
func (db *Database) DialectName() string { return db.dialect.name() }

// URL returns what the database was opened with.
func (db *Database) URL() *URL { return db.url }

// Lock keeps other processes, and other Databases of this one, from locking the
// same SQLite file until Close. It answers ErrInUse, naming the holder, if one of
// them has. Who only reads, or leaves waiting to SQLite, need not lock. Servers
// are made for many: on them it does nothing.
func (db *Database) Lock() (err error) {
	if db.url.Dialect != DialectSQLite {
		return nil
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.lock == nil {
		db.lock, err = lockFile(db.url.Path)
	}
	return err
}

// Close closes the pools. Connections in use close when their call is done. The
// lock is given up last.
func (db *Database) Close() error {
	err := errors.Join(db.read.Close(), db.write.Close())
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
// error says what is wrong and what to do; it wraps ErrUnavailable if trying
// again may help, ErrUnfit if something must be changed.
func (db *Database) Check(ctx context.Context) (Info, error) {
	conn, err := db.write.Connx(ctx)
	if err != nil {
		return Info{}, fmt.Errorf("connect to %s: %w", db.url, definite(ctx, db.dialect, err))
	}
	defer conn.Close() // only returns it to the pool
	info, err := db.dialect.check(ctx, db, conn)
	if err != nil && !errors.Is(err, ErrUnfit) {
		err = definite(ctx, db.dialect, err)
	}
	if err != nil {
		return Info{}, fmt.Errorf("check %s: %w", db.url, err)
	}
	return info, nil
}

// ErrUnfit: the database is reachable, but not fit to hold the data as it is.
var ErrUnfit = errors.New("sqlstore: database is not usable as it is")

func unfit(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnfit, fmt.Sprintf(format, args...))
}
