package sqlite

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Size implements sqldb.Engine: the database's pages and its log's file, and the pages that are not free.
func (e *engine) Size(ctx context.Context, db *sqldb.Database) (total, inUse int64, err error) {
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
	return pages*bytes + logSize(e.path), max(pages-free, 1) * bytes, nil
}

// incrementalVacuum is the mode in which free pages are given back when that is asked for.
const incrementalVacuum = 2

// vacuumPages is how many free pages are given back in one step, while commits wait.
const vacuumPages = "512"

// Defragment implements sqldb.Engine. It moves free pages to the end of the file and
// truncates it, in steps of vacuumPages. Commits run between two steps, and reads are never
// blocked. It does not merge half-empty pages; only VACUUM does. VACUUM is used on files
// that another program created without incremental vacuum. It blocks commits, not reads,
// until the whole file is rewritten.
//
// At the end the log is moved into the file and truncated, as far as readers permit.
func (e *engine) Defragment(ctx context.Context, db *sqldb.Database) error {
	mode, err := pragma(ctx, db, "auto_vacuum")
	if err != nil {
		return err
	}
	if mode != incrementalVacuum {
		err := e.write(ctx, db, "PRAGMA temp_store = FILE; VACUUM") // the copy may be larger than memory
		if err = errors.Join(err, e.write(context.WithoutCancel(ctx), db, tempInMemory)); err != nil {
			return err
		}
	}
	for before := int64(-1); mode == incrementalVacuum; {
		if err := e.releaseLog(ctx, db); err != nil { // each step needs it
			return err
		}
		free, err := pragma(ctx, db, "freelist_count")
		if err != nil {
			return err
		}
		if free == 0 || before >= 0 && free >= before { // done, or deletes are faster
			break
		}
		before = free
		if err := e.write(ctx, db, "PRAGMA incremental_vacuum("+vacuumPages+")"); err != nil {
			return err
		}
	}
	return e.truncateLog(ctx, db)
}

// write executes a statement on the connection that writes, and reads its rows: some do their work only then.
func (e *engine) write(ctx context.Context, db *sqldb.Database, text string) error {
	conn, err := db.Write().Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() // only returns it to the pool, after which another commit may follow
	err = sqldb.EachRow(ctx, conn, text, nil, func(*sql.Rows) (bool, error) { return true, nil })
	exitIfFlushFailed(e.logger, e.path, err)
	return err
}

func pragma(ctx context.Context, db *sqldb.Database, name string) (n int64, err error) {
	err = db.Write().GetContext(ctx, &n, "PRAGMA "+name)
	return n, err
}
