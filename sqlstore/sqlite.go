package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/jmoiron/sqlx"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// sqliteDialect keeps the table in a file, in write-ahead mode: one connection
// writes, the others read the state before. One store at a time has the file
// (see sqlite_lock.go); other programs may read it, and even write, because
// SQLite's locks serialise all transactions.
type sqliteDialect struct{}

func (*sqliteDialect) name() string    { return DialectSQLite }
func (*sqliteDialect) writeConns() int { return 1 }

func (*sqliteDialect) connectors(u *URL) ([]driver.Connector, error) {
	path, err := filepath.Abs(u.Path)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %s: %w", u, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("sqlstore: create the directory of %s: %w", u, err)
	}
	base, err := sqlite.NewConnector((&url.URL{Scheme: "file", Path: path}).String())
	if err != nil {
		return nil, fmt.Errorf("sqlstore: %s: %w", u, err)
	}
	return []driver.Connector{&sqliteConnector{base, path}}, nil
}

// SQLite's caches of pages, of each connection. What is not in them is mostly in the
// system's, which is nearly as fast and shared.
const (
	writerCacheBytes = 32 << 20
	readerCacheBytes = 8 << 20
)

// PageCacheBytes returns how much memory of this process the caches of SQLite take at
// most, in bytes, with so many connections for reading, as in Options: twice what they
// hold, as the allocator rounds a page and its header up to a power of two. Servers have
// their caches elsewhere: 0.
func PageCacheBytes(u *URL, maxOpenConns int) int64 {
	if u.Dialect != DialectSQLite {
		return 0
	}
	readers := Options{MaxOpenConns: maxOpenConns}.withDefaults(u.Dialect).MaxOpenConns
	return 2 * (writerCacheBytes + int64(readers)*readerCacheBytes)
}

func (*sqliteDialect) session(write bool) []string {
	statements := []string{
		"PRAGMA synchronous = FULL",
		// Rarer checkpoints: measured, a third to twice as many writes a second,
		// for an occasional longer one and a log of some 40 MB.
		"PRAGMA wal_autocheckpoint = 10000",
		"PRAGMA temp_store = MEMORY",
		"PRAGMA trusted_schema = OFF",
	}
	if write {
		return append(statements, cacheSize(writerCacheBytes))
	}
	return append(statements, cacheSize(readerCacheBytes), "PRAGMA query_only = ON")
}

// cacheSize is in KiB where it is negative.
func cacheSize(bytes int) string { return fmt.Sprintf("PRAGMA cache_size = %d", -bytes>>10) }

func (*sqliteDialect) texts() *texts { return &sqliteTexts }

var sqliteTexts = texts{
	snapshot: []string{"BEGIN"},
	// || makes TEXT, which no BLOB equals. The CROSS keeps the planner from
	// starting with the version rows.
	list: "SELECT i.internal_key, i.object_value, v.object_value FROM object AS i LEFT JOIN object AS v" +
		" ON v.internal_key = CAST(" + versionMagic + " || substr(i.internal_key, 5, length(i.internal_key) - 12) || substr(i.object_value, " + markAt + ") AS BLOB)" +
		" WHERE i.internal_key >= ? AND i.internal_key < ? ORDER BY i.internal_key LIMIT ?",
	listKeys: "SELECT internal_key, object_value FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key LIMIT ?",
	// SQLite has no function from a byte to its number: an odd last hexadecimal
	// digit is a set lowest bit.
	count: "SELECT COALESCE(SUM(substr(object_value, " + markAt + ") <= ? AND instr('02468ACE', substr(hex(substr(object_value, " + flagsAt + ")), 2, 1)) > 0), 0)," +
		" COALESCE(SUM(substr(object_value, " + markAt + ") > ?), 0) FROM object WHERE internal_key >= ? AND internal_key < ?",
	// A term of a compound SELECT has no ORDER BY of its own here.
	floor:     "SELECT * FROM (SELECT ? AS n, internal_key, object_value FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY internal_key DESC LIMIT 1)",
	timestamp: "SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) * 1000",
}

func (*sqliteDialect) classify(err error) failure {
	var p *prepareError
	if errors.As(err, &p) {
		err = p.err
	}
	if f, ok := classifyCommon(err); ok {
		return f
	}
	var file *fs.PathError
	if errors.As(err, &file) {
		return failureUnavailable // the file cannot be created
	}
	var e *sqlite.Error
	if !errors.As(err, &e) {
		return failureOther
	}
	switch e.Code() & 0xff { // extended codes carry more above
	case sqlite3.SQLITE_CONSTRAINT:
		if c := e.Code(); c == sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY || c == sqlite3.SQLITE_CONSTRAINT_UNIQUE {
			return failureConflict
		}
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_READONLY,
		sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_NOLFS:
		return failureUnavailable
	case sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_PROTOCOL:
		return failureUnknown
	case sqlite3.SQLITE_TOOBIG:
		return failureTooLarge
	case sqlite3.SQLITE_INTERRUPT:
		return failureLost
	}
	return failureOther
}

func (d *sqliteDialect) check(ctx context.Context, db *Database, conn *sqlx.Conn) (Info, error) {
	info := Info{Product: "SQLite", maxRow: maxKey + maxValue}
	if err := conn.GetContext(ctx, &info.Version, "SELECT sqlite_version()"); err != nil {
		return info, err
	}
	for _, p := range []struct{ pragma, want, hint string }{
		{"journal_mode", "wal", "the file system must support shared memory; network file systems do not"},
		{"synchronous", "2", "this is a fault of the program"},
	} {
		var got string
		if err := conn.GetContext(ctx, &got, "PRAGMA "+p.pragma); err != nil {
			return info, err
		}
		if got != p.want {
			return info, unfit("%s is %s, not %s: %s", p.pragma, got, p.want, p.hint)
		}
	}
	var columns []struct {
		Name    string `db:"name"`
		Type    string `db:"type"`
		NotNull bool   `db:"notnull"`
		Key     int    `db:"pk"`
	}
	err := conn.SelectContext(ctx, &columns, `SELECT name, type, "notnull", pk FROM pragma_table_info('object')`)
	if err != nil {
		return info, err
	}
	if len(columns) == 0 {
		return info, unfit(noTable)
	}
	var withoutRowID bool
	if err := conn.GetContext(ctx, &withoutRowID, "SELECT wr FROM pragma_table_list('object') WHERE schema = 'main'"); err != nil {
		return info, err
	}
	ok := len(columns) == 2 && !withoutRowID
	for i, c := range columns {
		name, key := "internal_key", 1
		if i == 1 {
			name, key = "object_value", 0
		}
		ok = ok && c.Name == name && strings.EqualFold(c.Type, "BLOB") && c.NotNull && c.Key == key
	}
	if !ok {
		return info, unfit("table object is %+v, without rowid %v; it must be (internal_key BLOB NOT NULL PRIMARY KEY, object_value BLOB NOT NULL) and not WITHOUT ROWID: "+otherTable, columns, withoutRowID)
	}
	return info, nil
}

const (
	noTable    = "table object does not exist: apply the migrations (sqlbrain migrate up)"
	otherTable = "it was not made by the migrations; use another database, or move the table out of the way and apply them (sqlbrain migrate up)"
)

func (*sqliteDialect) mayRefuse(string, error) bool { return false }
