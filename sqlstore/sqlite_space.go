package sqlstore

import (
	"context"
	"database/sql"
)

// size is the file's pages, and those that are not free. The write-ahead log
// beside it is not counted.
func (*sqliteDialect) size(ctx context.Context, db *Database) (total, inUse int64, err error) {
	conn, err := db.read.Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close() // only returns it to the pool
	var pages, free, bytes int64
	for _, p := range []struct {
		dest *int64
		text string
	}{{&pages, "PRAGMA page_count"}, {&free, "PRAGMA freelist_count"}, {&bytes, "PRAGMA page_size"}} {
		if err := conn.QueryRowContext(ctx, p.text).Scan(p.dest); err != nil {
			return 0, 0, err
		}
	}
	// The two counts are of two moments.
	return pages * bytes, max(pages-free, 1) * bytes, nil
}

// vacuumPages is how many free pages are given back while commits wait.
const vacuumPages = "512"

// defragment gives the free pages at the end of the file back, moving others
// there, in steps of vacuumPages: commits get their turn between two steps,
// reads are never stopped. It does not merge pages that are half empty; only
// VACUUM would, which is used on files that another program created without
// incremental vacuum, and holds up commits (not reads) until the whole file is
// written anew.
func (d *sqliteDialect) defragment(ctx context.Context, db *Database) error {
	mode, err := pragma(ctx, db, "auto_vacuum")
	if err != nil {
		return err
	}
	const incremental = 2
	if mode != incremental {
		if _, err := db.write.ExecContext(ctx, "VACUUM"); err != nil {
			return err
		}
		return checkpoint(ctx, db)
	}
	for before := int64(-1); ; {
		free, err := pragma(ctx, db, "freelist_count")
		if err != nil {
			return err
		}
		if free == 0 || before >= 0 && free >= before { // done, or deletes are faster
			return checkpoint(ctx, db)
		}
		before = free
		// It works while its (empty) rows are read.
		err = query(ctx, db.write, "PRAGMA incremental_vacuum("+vacuumPages+")", nil, func(*sql.Rows) (bool, error) { return true, nil })
		if err != nil {
			return err
		}
	}
}

// checkpoint moves the log into the file and cuts it, as far as readers let it.
func checkpoint(ctx context.Context, db *Database) error {
	return query(ctx, db.write, "PRAGMA wal_checkpoint(TRUNCATE)", nil, func(*sql.Rows) (bool, error) { return true, nil })
}

func pragma(ctx context.Context, db *Database, name string) (n int64, err error) {
	err = db.write.GetContext(ctx, &n, "PRAGMA "+name)
	return n, err
}
