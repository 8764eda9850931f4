package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteConnector creates the file with fileMode if it does not exist, and brings it
// into write-ahead mode.
type sqliteConnector struct {
	driver.Connector
	path string
}

// walAttempts bounds how often the switch to write-ahead mode is tried. Only a
// file that is being created, or closed by its last user, makes it fail.
const walAttempts = 50

func (c *sqliteConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if path, err := realPath(c.path); err == nil { // else SQLite says what is wrong with it
		if err := createPrivate(path); err != nil {
			return nil, err
		}
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := setUpFile(ctx, conn); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func setUpFile(ctx context.Context, conn driver.Conn) error {
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("sqlstore: a connection of type %T cannot execute with a context", conn)
	}
	exec := func(text string) error {
		if _, err := execer.ExecContext(ctx, text, nil); err != nil {
			return fmt.Errorf("%s: %w", text, err)
		}
		return nil
	}
	err := exec("PRAGMA busy_timeout = 10000")
	if err == nil {
		// Only matters to a file that is being created; it costs nothing measurable.
		err = exec("PRAGMA auto_vacuum = INCREMENTAL")
	}
	if err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := exec("PRAGMA journal_mode = WAL")
		if err == nil || attempt == walAttempts || !busy(err) {
			return err
		}
		// The switch does not wait for a lock, as everything else does. To take
		// the write lock for a moment does.
		if err := exec("BEGIN IMMEDIATE"); err == nil {
			if err := exec("ROLLBACK"); err != nil {
				return err
			}
		} else if !busy(err) {
			return err
		}
	}
}

func busy(err error) bool {
	var e *sqlite.Error
	return errors.As(err, &e) && e.Code()&0xff == sqlite3.SQLITE_BUSY
}
