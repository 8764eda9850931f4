package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

func (e *examination) sqlite(ctx context.Context) {
	var version string
	if e.ask(ctx, "version", "SELECT sqlite_version()", &version) {
		e.ok("version", "SQLite %s", version)
	}
	e.sqliteDurability(ctx)
	e.sqliteSize(ctx)

	// The pool may have one connection only, and schema takes its own.
	_ = e.conn.Close() // nothing is under way on it
	f := schema(ctx, e.Target)
	e.Findings = append(e.Findings, f)
	if f.Status != OK {
		return
	}
	conn, err := e.DB.Conn(ctx)
	if err != nil {
		e.broken("privileges", err)
		return
	}
	defer conn.Close() //nolint:errcheck // only returns it to the pool
	e.conn = conn
	e.sqliteRights(ctx)
	e.loss(ctx)
	e.rows(ctx)
}

// sqliteRights asks the system, because the file is opened for reading only. Another handle of the file would, once it
// is closed, release the locks of the first.
func (e *examination) sqliteRights(ctx context.Context) {
	var path string
	if !e.ask(ctx, "privileges", "SELECT file FROM pragma_database_list WHERE name = 'main'", &path) {
		return
	}
	if err := mayWriteDatabase(path); err != nil {
		e.add("privileges", Fail, err.Error(), "let the user that runs sqlbrain write the file, its log and its directory")
		return
	}
	e.ok("privileges", "the file, its log and its directory may be written")
}

// mayWriteDatabase returns why this process may not write to a file, its directory, or its log and the index of that,
// as if another user ran sqlbrain once.
func mayWriteDatabase(path string) error {
	err := mayWrite(filepath.Dir(path))
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if own := mayWrite(path + suffix); !errors.Is(own, fs.ErrNotExist) {
			err = cmp.Or(err, own)
		}
	}
	return err
}

func (e *examination) sqliteDurability(ctx context.Context) {
	var mode string
	switch {
	case !e.ask(ctx, "journal", "PRAGMA journal_mode", &mode):
	case mode == "off" || mode == "memory":
		e.add("journal", Fail, "journal_mode is "+mode, "a crash would corrupt the file: use WAL")
	case mode != "wal":
		e.add("journal", Warn, "journal_mode is "+mode,
			"readers and the writer wait for each other unless it is WAL; the server sets it, unless another program has the "+
				"file open")
	default:
		e.ok("journal", "journal_mode is wal")
	}
	var level int
	switch {
	case !e.ask(ctx, "durability", "PRAGMA synchronous", &level):
	case level < 2:
		e.add("durability", Warn, fmt.Sprintf("synchronous is %d", level),
			"a power failure can undo acknowledged writes: use FULL")
	default:
		e.ok("durability", "synchronous is full: commits are on disk before they are acknowledged")
	}
}

func (e *examination) sqliteSize(ctx context.Context) {
	var total [3]int64
	for i, name := range []string{"page_size", "page_count", "freelist_count"} {
		if !e.ask(ctx, "size", "PRAGMA "+name, &total[i]) {
			return
		}
	}
	e.ok("size", "%s, %s of it free", bytesText(total[0]*total[1]), bytesText(total[0]*total[2]))
}

func (e *examination) rows(ctx context.Context) {
	// An exact count would read the whole file.
	var present int
	switch {
	case !e.ask(ctx, "rows", "SELECT EXISTS (SELECT 1 FROM object)", &present):
	case present == 0:
		e.ok("rows", "the table is empty")
	default:
		e.ok("rows", "the table holds data")
	}
}
