package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
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
	swapOrPutText = "INSERT INTO object (internal_key, object_value) VALUES (?1, ?2) ON CONFLICT (internal_key) DO " +
		"UPDATE SET object_value = excluded.object_value WHERE object_value = ?3"
	putText = "INSERT INTO object (internal_key, object_value) VALUES (?, ?) ON CONFLICT (internal_key) DO UPDATE " +
		"SET object_value = excluded.object_value"
	deleteText   = "DELETE FROM object WHERE internal_key = ?"
	deleteIfText = "DELETE FROM object WHERE internal_key = ? AND object_value = ?"
	getText      = "SELECT object_value FROM object WHERE internal_key = ?"
)

// commitChecks is the number of rows between two checks of the context.
const commitChecks = 64

// Commit implements sqldb.Engine. A failed attempt is repeated, once, only if the log had no space, and its beginning is
// free now: SQLite waits for its locks by itself. Where the log must not grow, that is required of the first attempt.
func (e *engine) Commit(_ sqldb.Info, ops []sqlstore.Op) (statement string, attempt sqldb.Attempt) {
	var full error // why the log must not grow
	return "commit_tx", func(ctx context.Context, conn *sql.Conn) (again bool, err error) {
		if full == nil {
			full = e.fileNeedsSpace()
		}
		if full != nil {
			if frames, moved, err := e.checkpoint(ctx, conn, moveFrames); err != nil || moved < frames {
				return false, full // the log still needs its beginning
			}
		}
		if err = e.commitTx(ctx, conn, ops); full == nil && errors.Is(err, sqlstore.ErrFull) {
			full = err
			return true, err
		}
		return false, err
	}
}

// commitTx uses the only connection for writing. BEGIN may wait for another process, and
// ends with the context. Everything after it is local, and interrupting COMMIT would leave
// its outcome unknown.
func (e *engine) commitTx(ctx context.Context, conn *sql.Conn, ops []sqlstore.Op) error {
	tx := transaction{ops: ops}
	err := conn.Raw(func(c any) error { return tx.run(ctx, c.(*sqldb.Conn)) })
	if err == nil {
		e.committed(context.WithoutCancel(ctx), conn, ops)
		return nil
	}
	exitIfFlushFailed(e.logger, e.path, err)
	if errors.Is(err, errMissed) {
		err = conflictAt(context.WithoutCancel(ctx), conn, tx.at.Key)
	}
	undone := sqldb.Rollback(ctx, conn)
	if !tx.committing || sqldb.Harmless(e, err) {
		return sqldb.RolledBack(ctx, e, err)
	}
	switch failure := sqldb.Classify(e, err); {
	case failure == sqldb.FailureFull:
		// SQLite rolls back. It needs the space for the commit's last page in the log, without
		// which the log has no commit, not even for the next process after a crash. SQLITE_IOERR
		// differs: it may come after that page is in the log, as from the flush.
		return sqldb.RolledBack(ctx, e, err)
	case undone && failure != sqldb.FailureUnknown:
		return sqldb.RolledBack(ctx, e, err) // the transaction was still open
	}
	return sqldb.Uncertain(ctx, err)
}

// errMissed says that a conditional change did not change one row.
var errMissed = errors.New("sqlite: a row is not as expected")

// transaction carries out a batch on the driver's connection: database/sql takes several locks, and
// copies the arguments, for each statement.
type transaction struct {
	ops        []sqlstore.Op
	at         *sqlstore.Op         // the last one that was tried
	committing bool                 // it is at COMMIT
	args       [3]driver.NamedValue // of the current statement
}

func (t *transaction) run(ctx context.Context, c *sqldb.Conn) error {
	if _, err := c.ExecPrepared(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	local := context.WithoutCancel(ctx)
	if d := sqldb.FindDeletion(t.ops); d != nil {
		if done, err := t.swapRange(local, c, d); err != nil {
			return err
		} else if done {
			t.ops = d.Others
		}
	}
	for i := range t.ops {
		if i%commitChecks == 0 {
			if err := ctx.Err(); err != nil {
				return err
			}
		}
		if err := t.apply(local, c, &t.ops[i]); err != nil {
			return err
		}
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	t.committing = true
	_, err := c.ExecPrepared(local, "COMMIT")
	return err
}

func (t *transaction) apply(ctx context.Context, c *sqldb.Conn, op *sqlstore.Op) error {
	t.at = op
	var err error
	var conditional driver.Result
	switch op.Kind {
	case sqlstore.OpPutIfNotExist:
		conditional, err = c.ExecContext(ctx, insertText, t.bind(op.Key, op.Value))
	case sqlstore.OpCAS:
		conditional, err = c.ExecContext(ctx, swapText, t.bind(op.Key, op.Value, op.Old))
	case sqlstore.OpCASOrPut:
		conditional, err = c.ExecContext(ctx, swapOrPutText, t.bind(op.Key, op.Value, op.Old))
	case sqlstore.OpPut:
		_, err = c.ExecContext(ctx, putText, t.bind(op.Key, op.Value))
	case sqlstore.OpDel:
		_, err = c.ExecContext(ctx, deleteText, t.bind(op.Key))
	case sqlstore.OpDelCurrent:
		_, err = c.ExecContext(ctx, deleteIfText, t.bind(op.Key, op.Old))
	default:
		err = fmt.Errorf("sqlite: unknown kind of change %d", op.Kind)
	}
	if err != nil || conditional == nil {
		return err
	}
	n, err := conditional.RowsAffected()
	if err != nil || n == 1 {
		return err
	}
	return errMissed
}

// bind returns the arguments of the current statement.
func (t *transaction) bind(values ...[]byte) []driver.NamedValue {
	for i, v := range values {
		t.args[i] = driver.NamedValue{Ordinal: i + 1, Value: sqldb.NotNil(v)}
	}
	return t.args[:len(values)]
}

// conflictAt returns a *sqlstore.Conflict with the row of key in conn's open transaction.
func conflictAt(ctx context.Context, conn *sql.Conn, key []byte) error {
	c := &sqlstore.Conflict{Key: key}
	err := conn.QueryRowContext(ctx, getText, sqldb.NotNil(key)).Scan(&c.Value)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	default:
		c.Value = sqldb.NotNil(c.Value)
	}
	return c
}
