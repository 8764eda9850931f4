package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"modernc.org/libc"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/durable"
)

// connect returns a connector to the file that u names. With readOnly, it neither creates the file nor changes its
// journal mode, nor moves the log into the file when the last connection is closed: what a process left in the log that
// ended after a failed flush may not be on disk, and a power cut in between would leave a file that is changed in part.
func connect(u *sqlstore.URL, readOnly bool, logger *slog.Logger) (driver.Connector, error) {
	path, err := filepath.Abs(u.Path)
	if err != nil {
		return nil, fmt.Errorf("sqlite: %s: %w", u, err)
	}
	if err := durable.MakeDir(filepath.Dir(path), flushDir); err != nil {
		return nil, fmt.Errorf("sqlite: create the directory of %s: %w", u, err)
	}
	if mountPoint(path) {
		return nil, fmt.Errorf("%w: %s is itself a mount point, so that the files next to it, of which the log has "+
			"committed data, would be elsewhere; mount its directory instead", sqlstore.ErrUnfit, path)
	}
	if n := links(path); n > 1 {
		return nil, fmt.Errorf("%w: the file %s has %d names (hard links), each of which would have its own lock and its "+
			"own log of committed data; keep only the name that servers have used", sqlstore.ErrUnfit, path, n)
	}
	vfs, err := chooseVFS()
	if err = errors.Join(err, registerSwap()); err != nil {
		return nil, err
	}
	query := url.Values{}
	if readOnly {
		query.Set("mode", "ro")
	}
	if vfs != "" {
		query.Set("vfs", vfs)
	}
	base, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: path, RawQuery: query.Encode()}).String())
	if err != nil {
		return nil, fmt.Errorf("sqlite: %s: %w", u, err)
	}
	return &connector{Connector: base, path: path, readOnly: readOnly, logger: logger}, nil
}

// connector creates the file with fileMode if it does not exist, switches it to write-ahead mode, and
// writes again what it finds in the log.
type connector struct {
	driver.Connector
	path     string
	readOnly bool // none of that is done

	logger *slog.Logger

	mu        sync.Mutex
	rewritten bool
	failed    error // why the log cannot be used
}

// walPause is the time between two attempts to switch to write-ahead mode.
const walPause = 10 * time.Millisecond

func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	if path, err := realPath(c.path); err == nil && !c.readOnly { // otherwise SQLite reports what is wrong
		if err := createPrivate(path); err != nil {
			return nil, err
		}
	}
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.setUp(ctx, conn); err != nil {
		exitIfFlushFailed(c.logger, c.path, err)
		return nil, errors.Join(err, closeWithoutCheckpoint(conn))
	}
	return conn, nil
}

// closeWithoutCheckpoint closes conn. Closing the last connection would move the log into the file, before it is written
// again.
func closeWithoutCheckpoint(conn driver.Conn) error {
	db := uintptr(reflect.ValueOf(conn).Elem().FieldByName("db").Uint()) // the driver has no method for it
	tls := libc.NewTLS()
	defer tls.Close()
	args := libc.Xmalloc(tls, 2*8) // an int and a pointer, each in eight bytes
	if args == 0 {
		return errors.New("sqlite: out of memory to close without a checkpoint") // and leave conn open
	}
	defer libc.Xfree(tls, args)
	if rc := sqlite3.Xsqlite3_db_config(tls, db, sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE,
		libc.VaList(args, int32(1), uintptr(0))); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("sqlite: SQLite refuses to close without a checkpoint with error %d", rc) // and leave conn open
	}
	return conn.Close()
}

var errLog = errors.New("sqlite: what the last process left in the write-ahead log may not be on disk")

func (c *connector) setUp(ctx context.Context, conn driver.Conn) error {
	query, ok := conn.(driver.QueryerContext)
	if !ok {
		return fmt.Errorf("sqlite: a connection of type %T cannot query with a context", conn)
	}
	exec := func(text string) ([]driver.Value, error) {
		rows, err := query.QueryContext(ctx, text, nil)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", text, err)
		}
		row := make([]driver.Value, max(1, len(rows.Columns())))
		if err = rows.Next(row); errors.Is(err, io.EOF) {
			err = nil
		}
		return row, errors.Join(err, rows.Close())
	}
	if _, err := exec(fmt.Sprintf(busyTimeoutText, busyTimeout.Milliseconds())); err != nil || c.readOnly {
		return err
	}
	if err := setUpFile(exec); err != nil {
		return err
	}
	return c.rewriteLogOnce(exec)
}

// rewriteLogOnce writes the log again, before anything is added to it; see rewriteLog.
func (c *connector) rewriteLogOnce(exec execute) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rewritten || c.failed != nil {
		return c.failed
	}
	path, err := realPath(c.path)
	if err != nil {
		return err
	}
	path += logSuffix
	if filled, err := inLog(path); err != nil || !filled {
		c.rewritten = err == nil
		return err
	}
	row, err := exec(countFrames)
	if err != nil {
		return err
	}
	// SQLite remembers how much it has moved only while a process has the database open. Pages whose
	// flush failed since then would not be written again.
	if frames, moved := row[1].(int64), row[2].(int64); 0 < moved && moved < frames {
		c.failed = fmt.Errorf("%w: a process that has ended moved a part of it to the file, and another program has kept "+
			"the database open since: end that program, and start again", errLog)
		return c.failed
	}
	if _, err := exec("BEGIN IMMEDIATE"); err != nil {
		return err
	}
	if err := rewriteLog(path); err != nil {
		c.failed = fmt.Errorf("%w, and cannot be brought there; look for errors of the disk in the kernel's log: %w",
			errLog, err)
	}
	_, err = exec("ROLLBACK")
	c.rewritten = c.failed == nil
	return errors.Join(err, c.failed)
}

// busyTimeout bounds how long a statement waits for a lock of another process.
const busyTimeout = 10 * time.Second

// execute executes a statement and returns its first row, or one nil if there is none.
type execute = func(text string) ([]driver.Value, error)

func setUpFile(exec execute) error {
	// Setting it writes to the file, whatever it is. It only has an effect on a new file, or one that is vacuumed with
	// each commit. Its cost is not measurable.
	mode, err := exec("PRAGMA auto_vacuum")
	if err == nil && mode[0] != int64(incrementalVacuum) {
		_, err = exec("PRAGMA auto_vacuum = INCREMENTAL")
	}
	if err != nil {
		return err
	}
	for started := time.Now(); ; time.Sleep(walPause) {
		_, err := exec("PRAGMA journal_mode = WAL")
		if err == nil || !busy(err) || time.Since(started) >= busyTimeout {
			return err
		}
		// The switch waits for those who read a file in rollback mode, and not for a writer. BEGIN IMMEDIATE waits for
		// the write lock.
		if _, err := exec("BEGIN IMMEDIATE"); err == nil {
			if _, err := exec("ROLLBACK"); err != nil {
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
		"PRAGMA wal_autocheckpoint = 0", // see checkpoint.go
		fmt.Sprintf("PRAGMA journal_size_limit = %d", keptLog),
		tempInMemory,
		"PRAGMA trusted_schema = OFF",
	}
	statements = append(statements, cacheSize(pageCache))
	if write {
		return statements
	}
	return append(statements, "PRAGMA query_only = ON")
}

const tempInMemory = "PRAGMA temp_store = MEMORY"

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
