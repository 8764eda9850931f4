package doctor

import (
	"context"
	"fmt"
)

func (e *examination) sqlite(ctx context.Context) {
	var version string
	if err := e.conn.QueryRowContext(ctx, "SELECT sqlite_version()").Scan(&version); err != nil {
		e.broken("version", err)
	} else {
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
	e.rights(ctx)
	e.rows(ctx)
}

// pragma returns a number that PRAGMA name answers.
func (e *examination) pragma(ctx context.Context, name string) (n int64, err error) {
	err = e.conn.QueryRowContext(ctx, "PRAGMA "+name).Scan(&n)
	return n, err
}

func (e *examination) sqliteDurability(ctx context.Context) {
	var mode string
	err := e.conn.QueryRowContext(ctx, "PRAGMA journal_mode").Scan(&mode)
	switch {
	case err != nil:
		e.broken("journal", err)
	case mode == "off" || mode == "memory":
		e.add("journal", Fail, "journal_mode is "+mode, "a crash would corrupt the file: use WAL")
	case mode != "wal":
		e.add("journal", Warn, "journal_mode is "+mode, "readers and the writer wait for each other unless it is WAL; the server sets it, unless another program has the file open")
	default:
		e.ok("journal", "journal_mode is wal")
	}
	level, err := e.pragma(ctx, "synchronous")
	switch {
	case err != nil:
		e.broken("durability", err)
	case level < 2:
		e.add("durability", Warn, fmt.Sprintf("synchronous is %d", level), "a power failure can undo acknowledged writes: use FULL")
	default:
		e.ok("durability", "synchronous is full: commits are on disk before they are acknowledged")
	}
}

func (e *examination) sqliteSize(ctx context.Context) {
	var total [3]int64
	for i, name := range []string{"page_size", "page_count", "freelist_count"} {
		n, err := e.pragma(ctx, name)
		if err != nil {
			e.broken("size", err)
			return
		}
		total[i] = n
	}
	e.ok("size", "%s, %s of it free", bytesText(total[0]*total[1]), bytesText(total[0]*total[2]))
}

func (e *examination) rows(ctx context.Context) {
	// An exact count would read the whole file.
	var present int
	if err := e.conn.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM object)").Scan(&present); err != nil {
		e.broken("rows", err)
		return
	}
	if present == 0 {
		e.ok("rows", "the table is empty")
		return
	}
	e.ok("rows", "the table holds data")
}
