package sqlite

import (
	"context"
	"database/sql"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Size implements sqldb.Engine: the file's pages, and those that are not free. The write-ahead log
// next to it is not counted.
func (*engine) Size(ctx context.Context, db *sqldb.Database) (total, inUse int64, err error) {
	conn, err := db.Read().Conn(ctx)
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
	// The two counts were read at different times.
	return pages * bytes, max(pages-free, 1) * bytes, nil
}

// vacuumPages is how many free pages are given back in one step, while commits wait.
const vacuumPages = "512"

// Defragment implements sqldb.Engine. It moves free pages to the end of the file and
// truncates it, in steps of vacuumPages. Commits run between two steps, and reads are never
// blocked. It does not merge half-empty pages; only VACUUM does. VACUUM is used on files
// that another program created without incremental vacuum. It blocks commits, not reads,
// until the whole file is rewritten.
func (e *engine) Defragment(ctx context.Context, db *sqldb.Database) error {
	mode, err := pragma(ctx, db, "auto_vacuum")
	if err != nil {
		return err
	}
	const incremental = 2
	if mode != incremental {
		if _, err := db.Write().ExecContext(ctx, "VACUUM"); err != nil {
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
		// It does its work while its (empty) rows are read.
		err = sqldb.EachRow(ctx, db.Write(), "PRAGMA incremental_vacuum("+vacuumPages+")", nil, func(*sql.Rows) (bool, error) { return true, nil })
		if err != nil {
			return err
		}
	}
}

// checkpoint moves the log into the file and truncates the log, as far as readers permit.
func checkpoint(ctx context.Context, db *sqldb.Database) error {
	return sqldb.EachRow(ctx, db.Write(), "PRAGMA wal_checkpoint(TRUNCATE)", nil, func(*sql.Rows) (bool, error) { return true, nil })
}

func pragma(ctx context.Context, db *sqldb.Database, name string) (n int64, err error) {
	err = db.Write().GetContext(ctx, &n, "PRAGMA "+name)
	return n, err
}
