package mysql

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// commitTx commits a batch that one statement cannot express: in a transaction of
// multi-row statements. A transaction without COMMIT is rolled back when its connection
// ends, so all errors except those of COMMIT are definite.
func (e *engine) commitTx(ctx context.Context, conn *sql.Conn, info sqldb.Info,
	ops []sqlstore.Op) (again bool, err error) {
	tx := &transaction{upserts: &e.upserts, conn: conn, maxBytes: min(chunkBytes, info.MaxPacket-packetMargin)}
	if _, err = conn.ExecContext(ctx, "START TRANSACTION"); err == nil {
		err = tx.apply(ctx, ops)
	}
	if err != nil {
		sqldb.Rollback(ctx, conn)
		switch sqldb.Classify(e, err) {
		case sqldb.FailureConflict:
			return false, &sqlstore.Conflict{}
		case sqldb.FailureRetry, sqldb.FailureNotSent:
			again = true
		}
		return again, sqldb.RolledBack(ctx, e, err)
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	if err == nil {
		return false, nil
	}
	sqldb.Discard(conn)
	if sqldb.Harmless(e, err) {
		// The transaction ended with its connection.
		return true, sqldb.RolledBack(ctx, e, err)
	}
	switch sqldb.Classify(e, err) {
	case sqldb.FailureRetry:
		return true, sqldb.RolledBack(ctx, e, err)
	case sqldb.FailureUnavailable, sqldb.FailureDenied, sqldb.FailureFull, sqldb.FailureReadOnly,
		sqldb.FailureTooLarge:
		return false, sqldb.RolledBack(ctx, e, err)
	}
	return false, sqldb.Uncertain(ctx, err)
}

type transaction struct {
	upserts  *statementTexts
	conn     *sql.Conn
	maxBytes int
}

func (t *transaction) apply(ctx context.Context, ops []sqlstore.Op) error {
	d := sqldb.FindDeletion(ops)
	if d == nil {
		return t.applyRows(ctx, ops)
	}
	if err := t.applyRows(ctx, d.Others); err != nil { // the fence row is among them
		return err
	}
	if done, err := t.deleteRange(ctx, d); done || err != nil {
		return err
	}
	return t.applyRows(ctx, d.Swaps)
}

func (t *transaction) applyRows(ctx context.Context, ops []sqlstore.Op) error {
	// The row count of swaps is exact; that of either is not, so they are separate.
	var swaps, either, compare, inserts, puts, deletes []sqlstore.Op
	for _, op := range ops {
		switch {
		case conditional(op) && op.Kind == sqlstore.OpCASOrPut:
			either = append(either, op)
		case conditional(op):
			swaps = append(swaps, op)
		case op.Kind == sqlstore.OpPutIfNotExist:
			inserts = append(inserts, op)
		case op.Kind == sqlstore.OpPut:
			puts = append(puts, op)
		case op.Kind == sqlstore.OpDel:
			deletes = append(deletes, op)
		default:
			compare = append(compare, op)
		}
	}
	for _, group := range [][]sqlstore.Op{swaps, either} {
		if err := t.upsert(ctx, group, conditionalTail, true); err != nil {
			return err
		}
	}
	found, err := t.compare(ctx, compare)
	if err != nil {
		return err
	}
	if err := t.upsert(ctx, append(inserts, found.inserts...), "", true); err != nil {
		return err
	}
	if err := t.upsert(ctx, found.swaps, putTail, true); err != nil {
		return err
	}
	if err := t.upsert(ctx, puts, putTail, false); err != nil {
		return err
	}
	return t.delete(ctx, append(deletes, found.deletes...))
}

// upsert writes rows, several hundred per statement. If counted is set, it compares the
// number of affected rows with the expected one. A missing row that should have been
// replaced is a conflict: the transaction can still be rolled back.
func (t *transaction) upsert(ctx context.Context, ops []sqlstore.Op, tail string, counted bool) error {
	for len(ops) > 0 {
		n := t.chunk(ops)
		result, err := t.conn.ExecContext(ctx, t.upserts.text(tail, n), rowArgs(ops[:n])...)
		if err != nil {
			return err
		}
		if counted {
			affected, err := result.RowsAffected()
			if err != nil {
				return err
			}
			if low, high := expectedRows(ops[:n]); affected < low {
				return &sqlstore.Conflict{}
			} else if affected > high {
				return fmt.Errorf("mysql: %d rows affected, at most %d were due", affected, high)
			}
		}
		ops = ops[n:]
	}
	return nil
}

// chunk returns how many of ops the next statement takes. Few sizes are used, so
// that statements are prepared once: full chunks, and the rest.
func (t *transaction) chunk(ops []sqlstore.Op) int {
	size := 0
	for i, op := range ops {
		size += len(op.Key) + len(op.Value) + rowOverhead
		if i > 0 && size > t.maxBytes || i == chunkRows {
			return i
		}
	}
	return len(ops)
}

// compared is the outcome of comparing whole values: the changes to make.
type compared struct{ inserts, swaps, deletes []sqlstore.Op }

// compare locks and reads the rows whose whole values are compared.
func (t *transaction) compare(ctx context.Context, ops []sqlstore.Op) (found compared, err error) {
	for chunk := range slices.Chunk(ops, sqldb.InKeys) {
		current, err := t.lock(ctx, chunk)
		if err != nil {
			return found, err
		}
		for _, op := range chunk {
			value, exists := current[string(op.Key)]
			same := exists && bytes.Equal(value, op.Old)
			switch {
			case op.Kind == sqlstore.OpDelCurrent:
				if same {
					found.deletes = append(found.deletes, op)
				}
			case op.Kind == sqlstore.OpCASOrPut && !exists:
				op.Kind = sqlstore.OpPutIfNotExist
				found.inserts = append(found.inserts, op)
			case !same:
				return found, &sqlstore.Conflict{Key: op.Key, Value: value}
			default:
				op.Kind = sqlstore.OpCAS
				found.swaps = append(found.swaps, op)
			}
		}
	}
	return found, nil
}

// lock returns the values of those rows of ops that exist, locked.
func (t *transaction) lock(ctx context.Context, ops []sqlstore.Op) (map[string][]byte, error) {
	text, args := sqldb.InList("SELECT internal_key, object_value FROM object WHERE internal_key IN ", keysOf(ops))
	current := make(map[string][]byte, len(ops))
	err := sqldb.EachRow(ctx, t.conn, text+" FOR UPDATE", args, func(r *sql.Rows) (bool, error) {
		var row sqlstore.Row
		if err := r.Scan(&row.Key, &row.Value); err != nil {
			return false, err
		}
		current[string(row.Key)] = sqldb.NotNil(row.Value)
		return true, nil
	})
	return current, err
}

func keysOf(ops []sqlstore.Op) [][]byte {
	keys := make([][]byte, len(ops))
	for i, op := range ops {
		keys[i] = op.Key
	}
	return keys
}

func (t *transaction) delete(ctx context.Context, ops []sqlstore.Op) error {
	for chunk := range slices.Chunk(ops, sqldb.InKeys) {
		text, args := sqldb.InList("DELETE FROM object WHERE internal_key IN ", keysOf(chunk))
		if _, err := t.conn.ExecContext(ctx, text, args...); err != nil {
			return err
		}
	}
	return nil
}
