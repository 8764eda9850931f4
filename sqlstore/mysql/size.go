package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Size implements sqldb.Engine with the server's estimate of the table's pages, which may be hours old.
func (*engine) Size(ctx context.Context, db *sqldb.Database) (total, inUse int64, err error) {
	const text = "SELECT COALESCE(data_length, 0) + COALESCE(index_length, 0)" +
		" FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'object'"
	err = db.Read().GetContext(ctx, &inUse, text)
	return 0, max(inUse, 1), err
}

// FreeSpace implements sqldb.Engine: a server does not say.
func (*engine) FreeSpace() (free, reserve int64, err error) { return 0, 0, nil }

// setDefragmentWait bounds how long, in seconds, Defragment waits until no transaction uses the table, at its start and
// at its end. All later statements wait after it. A backup, or a transaction of a process that is frozen, may use the
// table for hours.
const setDefragmentWait = "SET SESSION lock_wait_timeout = 3"

// Defragment implements sqldb.Engine. It rebuilds the table in place. Reads and commits continue,
// except for a short time at the start and at the end. It needs space for a second copy,
// and has no time bound. TiDB gives space back by itself. On Galera the statement would stop all commits on all nodes
// until it is done.
func (e *engine) Defragment(ctx context.Context, _ *sqldb.Database) (err error) {
	if e.tidb.Load() {
		return nil
	}
	if e.galera.Load() {
		e.logger.WarnContext(ctx, "not defragmenting: OPTIMIZE TABLE would stop all commits on all Galera nodes")
		return nil
	}
	// A separate connection, whose reads have no time bound.
	one := sql.OpenDB(e.patient)
	defer func() { err = errors.Join(err, one.Close()) }()
	one.SetMaxOpenConns(1)
	conn, err := one.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, setDefragmentWait); err != nil {
		return err
	}
	// The result is rows, which include errors.
	var failed []string
	err = sqldb.EachRow(ctx, conn, "OPTIMIZE TABLE object", nil, func(r *sql.Rows) (bool, error) {
		var table, op, kind, text string
		err := r.Scan(&table, &op, &kind, &text)
		if strings.EqualFold(kind, "error") {
			failed = append(failed, text)
		}
		return true, err
	})
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("OPTIMIZE TABLE: %s", strings.Join(failed, "; "))
	}
	return err
}
