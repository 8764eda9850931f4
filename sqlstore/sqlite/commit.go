package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// One prepared statement per row, in one transaction, is faster than multi-row statements.
// Each conditional change must report one row.
const (
	insertText    = "INSERT INTO object (internal_key, object_value) VALUES (?, ?) ON CONFLICT DO NOTHING"
	swapText      = "UPDATE object SET object_value = ?2 WHERE internal_key = ?1 AND object_value = ?3"
	swapOrPutText = "INSERT INTO object (internal_key, object_value) VALUES (?1, ?2) ON CONFLICT (internal_key) DO UPDATE SET object_value = excluded.object_value WHERE object_value = ?3"
	putText       = "INSERT INTO object (internal_key, object_value) VALUES (?, ?) ON CONFLICT (internal_key) DO UPDATE SET object_value = excluded.object_value"
	deleteText    = "DELETE FROM object WHERE internal_key = ?"
	deleteIfText  = "DELETE FROM object WHERE internal_key = ? AND object_value = ?"
	getText       = "SELECT object_value FROM object WHERE internal_key = ?"
)

// commitChecks is the number of rows between two checks of the context.
const commitChecks = 64

// Commit implements sqldb.Engine. A failed attempt is not repeated: SQLite waits for
// its locks by itself.
func (e *engine) Commit(_ sqldb.Info, ops []sqlstore.Op) (statement string, attempt sqldb.Attempt) {
	return "commit_tx", func(ctx context.Context, conn *sql.Conn) (bool, error) { return false, e.commitTx(ctx, conn, ops) }
}

// commitTx uses the only connection for writing. BEGIN may wait for another process, and
// ends with the context. Everything after it is local, and interrupting COMMIT would leave
// its outcome unknown.
func (e *engine) commitTx(ctx context.Context, conn *sql.Conn, ops []sqlstore.Op) (err error) {
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		sqldb.Rollback(ctx, conn)
		return sqldb.Definite(ctx, e, err)
	}
	local := context.WithoutCancel(ctx)
	for i, op := range ops {
		if i%commitChecks == 0 {
			err = ctx.Err()
		}
		if err == nil {
			err = e.apply(local, conn, op)
		}
		if err != nil {
			sqldb.Rollback(ctx, conn)
			return sqldb.Definite(ctx, e, err)
		}
	}
	if err := ctx.Err(); err != nil {
		sqldb.Rollback(ctx, conn)
		return sqldb.Definite(ctx, e, err)
	}
	if _, err := conn.ExecContext(local, "COMMIT"); err != nil {
		undone := sqldb.Rollback(ctx, conn)
		switch failure := sqldb.Classify(e, err); {
		case failure == sqldb.FailureFull:
			// SQLite rolls back. It needs the space for the commit's last page in the log, without
			// which the log has no commit, not even for the next process after a crash. SQLITE_IOERR
			// differs: it may come after that page is in the log, as from the flush.
			return sqldb.Definite(ctx, e, err)
		case undone && failure != sqldb.FailureUnknown:
			return sqldb.Definite(ctx, e, err) // the transaction was still open
		}
		return sqldb.Uncertain(ctx, err)
	}
	return nil
}

func (e *engine) apply(ctx context.Context, conn *sql.Conn, op sqlstore.Op) error {
	key, value, old := sqldb.NotNil(op.Key), sqldb.NotNil(op.Value), sqldb.NotNil(op.Old)
	var err error
	var result sql.Result
	switch op.Kind {
	case sqlstore.OpPutIfNotExist:
		result, err = conn.ExecContext(ctx, insertText, key, value)
	case sqlstore.OpCAS:
		result, err = conn.ExecContext(ctx, swapText, key, value, old)
	case sqlstore.OpCASOrPut:
		result, err = conn.ExecContext(ctx, swapOrPutText, key, value, old)
	case sqlstore.OpPut:
		_, err = conn.ExecContext(ctx, putText, key, value)
	case sqlstore.OpDel:
		_, err = conn.ExecContext(ctx, deleteText, key)
	case sqlstore.OpDelCurrent:
		_, err = conn.ExecContext(ctx, deleteIfText, key, old)
	default:
		err = fmt.Errorf("sqlstore: unknown kind of change %d", op.Kind)
	}
	if err != nil || result == nil {
		return err
	}
	n, err := result.RowsAffected()
	if err != nil || n == 1 {
		return err
	}
	c := &sqlstore.Conflict{Key: op.Key}
	err = conn.QueryRowContext(ctx, getText, key).Scan(&c.Value)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	default:
		c.Value = sqldb.NotNil(c.Value)
	}
	return c
}
