package sqlstore

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/sqlstore/internal/batch"
)

// commitTx carries out a batch that one statement cannot: in a transaction of
// statements of many rows each. A transaction that is not told to commit is
// rolled back when its connection ends, so all errors but those of COMMIT are
// definite.
func (d *mysqlDialect) commitTx(ctx context.Context, s *DBStore, ops []batch.Op) (again bool, err error) {
	conn, err := s.db.write.Conn(ctx)
	if err != nil {
		return false, definite(ctx, d, err)
	}
	defer conn.Close() // only returns it to the pool
	tx := &mysqlTx{dialect: d, conn: conn, maxBytes: min(chunkBytes, s.info.MaxPacket-packetMargin)}
	if _, err = conn.ExecContext(ctx, "START TRANSACTION"); err == nil {
		err = tx.apply(ctx, ops)
	}
	if err != nil {
		rollback(ctx, conn)
		switch d.classify(err) {
		case failureConflict:
			return false, &Conflict{}
		case failureRetry, failureNotSent:
			again = true
		}
		return again, definite(ctx, d, err)
	}
	_, err = conn.ExecContext(ctx, "COMMIT")
	if err == nil {
		return false, nil
	}
	discard(conn)
	if harmless(d, err) {
		// The transaction ended with its connection.
		return true, definite(ctx, d, err)
	}
	switch d.classify(err) {
	case failureRetry:
		return true, definite(ctx, d, err)
	case failureUnavailable, failureReadOnly, failureTooLarge:
		return false, definite(ctx, d, err)
	}
	return false, uncertain(ctx, err)
}

type mysqlTx struct {
	dialect  *mysqlDialect
	conn     *sql.Conn
	maxBytes int
}

func (t *mysqlTx) apply(ctx context.Context, ops []batch.Op) error {
	// swaps is judged by its row count exactly; either-or rows are apart.
	var swaps, either, compare, inserts, puts, deletes []batch.Op
	for _, op := range ops {
		switch {
		case conditional(op) && op.Kind == batch.CASOrPut:
			either = append(either, op)
		case conditional(op):
			swaps = append(swaps, op)
		case op.Kind == batch.PutIfNotExist:
			inserts = append(inserts, op)
		case op.Kind == batch.Put:
			puts = append(puts, op)
		case op.Kind == batch.Del:
			deletes = append(deletes, op)
		default:
			compare = append(compare, op)
		}
	}
	for _, group := range [][]batch.Op{swaps, either} {
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

// upsert writes rows, some hundreds a statement, and compares the rows that
// count as affected with those due if counted is set. A row that should have
// been replaced and was missing conflicts: it is not too late here.
func (t *mysqlTx) upsert(ctx context.Context, ops []batch.Op, tail string, counted bool) error {
	for len(ops) > 0 {
		n := t.chunk(ops)
		result, err := t.conn.ExecContext(ctx, t.dialect.upserts.text(tail, n), rowArgs(ops[:n])...)
		if err != nil {
			return err
		}
		if counted {
			affected, err := result.RowsAffected()
			if err != nil {
				return err
			}
			if low, high := expectedRows(ops[:n]); affected < low {
				return &Conflict{}
			} else if affected > high {
				return fmt.Errorf("sqlstore: %d rows affected, at most %d were due", affected, high)
			}
		}
		ops = ops[n:]
	}
	return nil
}

// chunk returns how many of ops the next statement takes. Few sizes are used, so
// that statements are prepared once: full chunks, and the rest.
func (t *mysqlTx) chunk(ops []batch.Op) int {
	size := 0
	for i, op := range ops {
		size += len(op.Key) + len(op.Value) + rowOverhead
		if i > 0 && size > t.maxBytes || i == chunkRows {
			return i
		}
	}
	return len(ops)
}

// compared is what is to be done with rows whose values were compared.
type compared struct{ inserts, swaps, deletes []batch.Op }

// compare locks and reads the rows whose whole values are compared.
func (t *mysqlTx) compare(ctx context.Context, ops []batch.Op) (found compared, err error) {
	for chunk := range slices.Chunk(ops, inKeys) {
		current, err := t.lock(ctx, chunk)
		if err != nil {
			return found, err
		}
		for _, op := range chunk {
			value, exists := current[string(op.Key)]
			same := exists && bytes.Equal(value, op.Old)
			switch {
			case op.Kind == batch.DelCurrent:
				if same {
					found.deletes = append(found.deletes, op)
				}
			case op.Kind == batch.CASOrPut && !exists:
				op.Kind = batch.PutIfNotExist
				found.inserts = append(found.inserts, op)
			case !same:
				return found, &Conflict{Key: op.Key, Value: value}
			case !bytes.Equal(value, op.Value): // equal ones would not count as affected
				op.Kind = batch.CAS
				found.swaps = append(found.swaps, op)
			}
		}
	}
	return found, nil
}

// lock returns the values of those rows of ops that exist, locked.
func (t *mysqlTx) lock(ctx context.Context, ops []batch.Op) (map[string][]byte, error) {
	text, args := inList("SELECT internal_key, object_value FROM object WHERE internal_key IN ", keysOf(ops))
	current := make(map[string][]byte, len(ops))
	err := query(ctx, t.conn, text+" FOR UPDATE", args, func(r *sql.Rows) (bool, error) {
		var row Row
		if err := r.Scan(&row.Key, &row.Value); err != nil {
			return false, err
		}
		current[string(row.Key)] = notNil(row.Value)
		return true, nil
	})
	return current, err
}

func keysOf(ops []batch.Op) [][]byte {
	keys := make([][]byte, len(ops))
	for i, op := range ops {
		keys[i] = op.Key
	}
	return keys
}

func (t *mysqlTx) delete(ctx context.Context, ops []batch.Op) error {
	for chunk := range slices.Chunk(ops, inKeys) {
		text, args := inList("DELETE FROM object WHERE internal_key IN ", keysOf(chunk))
		if _, err := t.conn.ExecContext(ctx, text, args...); err != nil {
			return err
		}
	}
	return nil
}
