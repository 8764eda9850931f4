package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// connect returns a connector to the file that u names. With look it leaves the file as it is.
func connect(u *sqlstore.URL, look bool) (driver.Connector, error) {
	path, err := filepath.Abs(u.Path)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %s: %w", u, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("sqlstore: create the directory of %s: %w", u, err)
	}
	if err := registerGather(); err != nil {
		return nil, err
	}
	base, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: "vfs=" + gatherVFS}).String())
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %s: %w", u, err)
	}
	return &connector{base, path, look}, nil
}

// connector creates the file with fileMode if it does not exist, and switches it to
// write-ahead mode.
type connector struct {
	driver.Connector
	path string
	look bool // do neither
}

// walAttempts bounds how often the switch to write-ahead mode is tried. Only a
// file that is being created, or closed by its last user, makes it fail.
const walAttempts = 50

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if path, err := realPath(c.path); err == nil && !c.look { // otherwise SQLite reports what is wrong
		if err := createPrivate(path); err != nil {
			return nil, err
		}
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := setUpFile(ctx, conn, c.look); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

func setUpFile(ctx context.Context, conn driver.Conn, look bool) error {
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
	if err != nil || look {
		return err
	}
	// It only has an effect on a new file, or one that is vacuumed with each commit. Its cost is not measurable.
	if err := exec("PRAGMA auto_vacuum = INCREMENTAL"); err != nil {
		return err
	}
	for attempt := 1; ; attempt++ {
		err := exec("PRAGMA journal_mode = WAL")
		if err == nil || attempt == walAttempts || !busy(err) {
			return err
		}
		// The switch does not wait for a lock, unlike all other statements. BEGIN
		// IMMEDIATE waits for the write lock.
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

// sessionStatements returns the statements that every new connection begins with.
func sessionStatements(write bool, pageCache int64) []string {
	statements := []string{
		"PRAGMA synchronous = FULL",
		// Fewer checkpoints: measured, a third to twice as many more writes per second, at
		// the cost of an occasional slow write and a log of about 40 MB.
		"PRAGMA wal_autocheckpoint = 10000",
		"PRAGMA temp_store = MEMORY",
		"PRAGMA trusted_schema = OFF",
	}
	statements = append(statements, cacheSize(pageCache))
	if write {
		return statements
	}
	return append(statements, "PRAGMA query_only = ON")
}

// cacheSize returns the statement that sets the cache size. A negative number is in KiB.
func cacheSize(bytes int64) string { return fmt.Sprintf("PRAGMA cache_size = %d", -bytes>>10) }

// defaultPageCache is the default of sqlstore.Options.PageCache. Other pages are mostly in the cache
// of the operating system, which is nearly as fast and shared.
const defaultPageCache = 4 << 20

// pageCaches divides the page cache between the connection that writes, and each of those that read.
func pageCaches(total int64, readers int) (writer, reader int64) {
	if total <= 0 {
		total = defaultPageCache
	}
	return total / 2, total / 2 / int64(readers)
}
