package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// freshStatistics makes MySQL read current statistics instead of a cached copy that is up
// to a day old. MariaDB, which has no such cache, skips the comment.
const freshStatistics = "SET SESSION /*!80000 information_schema_stats_expiry = 0, */ autocommit = 1"

// Size implements sqldb.Engine with InnoDB's estimate: pages of the table, and those it calls free. On TiDB it is the
// bytes of the rows, or TiDB's estimate if they cannot be counted in the time that ctx leaves.
func (e *engine) Size(ctx context.Context, db *sqldb.Database) (total, inUse int64, err error) {
	const text = "SELECT COALESCE(data_length, 0) + COALESCE(index_length, 0), COALESCE(data_free, 0)" +
		" FROM information_schema.tables WHERE table_schema = DATABASE() AND table_name = 'object'"
	conn, err := db.Read().Conn(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close() // only returns it to the pool
	if e.tidb.Load() {
		bytes, known, err := e.rowBytes.size(ctx, conn)
		if known || err != nil {
			return max(bytes, 1), max(bytes, 1), err
		}
	}
	var refused *mysql.MySQLError
	if _, err := conn.ExecContext(ctx, freshStatistics); err != nil &&
		!(errors.As(err, &refused) && refused.Number == unknownSystemVariable) {
		return 0, 0, err
	}
	var free int64
	err = conn.QueryRowContext(ctx, text).Scan(&inUse, &free)
	// An empty table has one page, even if the statistics report none.
	return max(inUse+free, 1), max(inUse, 1), err
}

// FreeSpace implements sqldb.Engine: a server does not say.
func (*engine) FreeSpace() (free, reserve int64, err error) { return 0, 0, nil }

// setDefragmentWait bounds how long, in seconds, Defragment waits until no transaction uses the table, at its start and
// at its end. All later statements wait after it. A backup, or a transaction of a process that is frozen, may use the
// table for hours.
const setDefragmentWait = "SET SESSION lock_wait_timeout = 3"

// Defragment implements sqldb.Engine. It rebuilds the table in place. Reads and commits continue,
// except for a short time at the start and at the end. It needs space for a second copy,
// and has no time bound. TiDB gives space back by itself.
func (e *engine) Defragment(ctx context.Context, db *sqldb.Database) (err error) {
	var version string
	if err := db.Read().GetContext(ctx, &version, "SELECT VERSION()"); err != nil {
		return err
	}
	if strings.Contains(version, "TiDB") {
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
