package migrations

import (
	"context"
	"database/sql"
	"errors"
	"io"

	"github.com/golang-migrate/migrate/v4/database"
)

var sqliteDialect = dialect{
	dir:      "sqlite",
	keyTypes: []string{"blob"}, valueTypes: []string{"blob"},
	columns: func(ctx context.Context, conn *sql.Conn, table string) ([]column, error) {
		return scanColumns(ctx, conn, `SELECT name, type FROM pragma_table_info(?) ORDER BY cid`, table)
	},
	readLockWait: "PRAGMA busy_timeout", setLockWait: "PRAGMA busy_timeout = ", lockWait: 10_000,
	driver: func(ctx context.Context, conn *sql.Conn) (database.Driver, error) {
		return &sqliteDriver{ctx: ctx, conn: conn}, nil
	},
	undone: func(error) bool { return false }, // others wait for the lock
}

// sqliteDriver keeps its state exactly as golang-migrate's own driver does and
// differs in one thing: the lock is the database's write lock, and all that
// happens under it is one transaction. The stock driver's lock holds within one
// process only, and its Version takes an error (a busy database, say) for an
// empty schema; two processes that start at once then leave a dirty schema.
type sqliteDriver struct {
	ctx    context.Context // of the one call the driver is made for
	conn   *sql.Conn
	inTx   bool
	failed error // the first; the transaction is rolled back for it
}

var _ database.Driver = (*sqliteDriver)(nil)

func (d *sqliteDriver) Open(string) (database.Driver, error) {
	return nil, errors.New("migrations: the driver works on a given connection only")
}

// Lock begins the transaction.
func (d *sqliteDriver) Lock() error {
	if d.inTx {
		return database.ErrLocked
	}
	if err := d.exec("BEGIN IMMEDIATE"); err != nil {
		if isBusy(err) {
			return database.ErrLocked
		}
		return err
	}
	d.inTx, d.failed = true, nil
	if err := d.exec("CREATE TABLE IF NOT EXISTS " + versionsTable + " (version uint64,dirty bool);" +
		"CREATE UNIQUE INDEX IF NOT EXISTS version_unique ON " + versionsTable + " (version)"); err != nil {
		return errors.Join(err, d.end())
	}
	return nil
}

// isBusy reports whether another process kept the lock, whatever it writes.
func isBusy(err error) bool {
	const busy = 5 // SQLITE_BUSY; extended codes carry more above the lowest byte
	var e interface{ Code() int }
	return errors.As(err, &e) && e.Code()&0xff == busy
}

// Unlock commits, or rolls everything back if anything failed.
func (d *sqliteDriver) Unlock() error {
	if !d.inTx {
		return database.ErrNotLocked
	}
	return d.end()
}

func (d *sqliteDriver) end() error {
	stmt := "COMMIT"
	if d.failed != nil {
		stmt = "ROLLBACK"
	}
	// The transaction must end even if the caller's context did.
	_, err := d.conn.ExecContext(context.WithoutCancel(d.ctx), stmt)
	if err != nil && stmt == "COMMIT" {
		_, rerr := d.conn.ExecContext(context.WithoutCancel(d.ctx), "ROLLBACK")
		err = errors.Join(err, rerr)
	}
	d.inTx = false
	return err
}

func (d *sqliteDriver) Run(migration io.Reader) error {
	script, err := io.ReadAll(migration)
	if err != nil {
		d.fail(err)
		return err
	}
	return d.exec(string(script))
}

func (d *sqliteDriver) SetVersion(version int, dirty bool) error {
	if err := d.exec("DELETE FROM " + versionsTable); err != nil {
		return err
	}
	if version >= 0 || dirty {
		return d.exec("INSERT INTO "+versionsTable+" (version, dirty) VALUES (?, ?)", version, dirty)
	}
	return nil
}

func (d *sqliteDriver) Version() (version int, dirty bool, err error) {
	err = d.conn.QueryRowContext(d.ctx, "SELECT version, dirty FROM "+versionsTable).Scan(&version, &dirty)
	if errors.Is(err, sql.ErrNoRows) {
		return database.NilVersion, false, nil
	}
	d.fail(err)
	return version, dirty, err
}

// Drop is not offered: it would drop tables that are not sqlbrain's.
func (d *sqliteDriver) Drop() error {
	return errors.New("migrations: dropping a whole database is not supported")
}

// Close rolls back what is under way. The connection stays open.
func (d *sqliteDriver) Close() error {
	if !d.inTx {
		return nil
	}
	d.fail(errors.New("migrations: closed while migrating"))
	return d.end()
}

func (d *sqliteDriver) exec(query string, args ...any) error {
	_, err := d.conn.ExecContext(d.ctx, query, args...)
	d.fail(err)
	return err
}

func (d *sqliteDriver) fail(err error) {
	if d.failed == nil {
		d.failed = err
	}
}
