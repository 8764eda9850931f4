package migrations

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
)

// dialect is what differs between the engines.
type dialect struct {
	dir string // of files
	// columns returns the columns of a table or view of the current database;
	// none if it does not exist.
	columns func(ctx context.Context, conn *sql.Conn, table string) ([]column, error)
	// keyTypes and valueTypes are the types, in lower case, of object's columns.
	keyTypes, valueTypes []string
	// driver returns golang-migrate's driver on conn. Closing the driver must
	// leave conn open.
	driver func(ctx context.Context, conn *sql.Conn) (database.Driver, error)
	// undone reports whether err means that a statement had no effect and is worth
	// repeating.
	undone func(err error) bool
	// lockWait names the connection's setting that bounds how long a statement
	// waits for others: how to read it, and how to set it to a number.
	readLockWait, setLockWait string
	lockWait                  int // that is 10 s
}

func lookup(name string) (*dialect, error) {
	switch name {
	case "mysql":
		return &mysqlDialect, nil
	case "sqlite":
		return &sqliteDialect, nil
	}
	return nil, fmt.Errorf("%w: %q", ErrDialect, name)
}

// withConn runs f on a connection of db whose statements do not wait longer than
// 10 s for locks: by default SQLite's do not wait at all, and MySQL's for as
// long as a day. The connection goes back to the pool as it was.
func (d *dialect) withConn(ctx context.Context, db *sql.DB, f func(*sql.Conn) error) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	defer func() { err = errors.Join(err, conn.Close()) }()

	var before int
	if err := conn.QueryRowContext(ctx, d.readLockWait).Scan(&before); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	if _, err := conn.ExecContext(ctx, fmt.Sprint(d.setLockWait, d.lockWait)); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	err = f(conn)
	// The setting must not stay, even if the caller's context has ended.
	_, restoreErr := conn.ExecContext(context.WithoutCancel(ctx), fmt.Sprint(d.setLockWait, before))
	return errors.Join(err, restoreErr)
}

// translate names golang-migrate's conditions in this package's words.
func translate(err error) error {
	var dirty migrate.ErrDirty
	switch {
	case err == nil:
		return nil
	case errors.As(err, &dirty):
		return dirtyError(dirty.Version)
	case errors.Is(err, database.ErrLocked), errors.Is(err, migrate.ErrLockTimeout), errors.Is(err, migrate.ErrLocked):
		return fmt.Errorf("%w: waited 10 s for it", ErrLocked)
	}
	// A *database.Error prints the whole statement, over many lines.
	if de, ok := errors.AsType[*database.Error](err); ok && de.OrigErr != nil {
		return fmt.Errorf("migrations: %w", de.OrigErr)
	}
	if dv, ok := errors.AsType[database.Error](err); ok && dv.OrigErr != nil {
		return fmt.Errorf("migrations: %w", dv.OrigErr)
	}
	return fmt.Errorf("migrations: %w", err)
}

//go:embed mysql/*.sql sqlite/*.sql
var files embed.FS

type column struct{ name, typ string }

// The tables of the schema.
const (
	objectTable   = "object"
	versionsTable = "schema_migrations"
)
