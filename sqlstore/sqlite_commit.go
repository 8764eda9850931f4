package sqlstore

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/sqlstore/internal/batch"
)

// One prepared statement per row, in one transaction: faster here than
// statements of many rows. Each change but the unconditional ones must report
// one row.
const (
	sqliteInsert    = "INSERT INTO object (internal_key, object_value) VALUES (?, ?) ON CONFLICT DO NOTHING"
	sqliteSwap      = "UPDATE object SET object_value = ?2 WHERE internal_key = ?1 AND object_value = ?3"
	sqliteSwapOrPut = "INSERT INTO object (internal_key, object_value) VALUES (?1, ?2) ON CONFLICT (internal_key) DO UPDATE SET object_value = excluded.object_value WHERE object_value = ?3"
	sqlitePut       = "INSERT INTO object (internal_key, object_value) VALUES (?, ?) ON CONFLICT (internal_key) DO UPDATE SET object_value = excluded.object_value"
	sqliteDelete    = "DELETE FROM object WHERE internal_key = ?"
	sqliteDeleteIf  = "DELETE FROM object WHERE internal_key = ? AND object_value = ?"
	sqliteGet       = "SELECT object_value FROM object WHERE internal_key = ?"
)

// commitChecks is after how many rows the context is looked at again.
const commitChecks = 64

func (d *sqliteDialect) commit(ctx context.Context, s *DBStore, ops []batch.Op) error {
	return s.observe(ctx, "commit_tx", func() error { return d.commitTx(ctx, s, ops) })
}

// commitTx has the one writing connection to itself. Only BEGIN, which may have
// to wait for another process, ends with the context; what follows is local,
// and interrupting a COMMIT would leave its outcome open.
func (d *sqliteDialect) commitTx(ctx context.Context, s *DBStore, ops []batch.Op) error {
	conn, err := s.db.write.Conn(ctx)
	if err != nil {
		return definite(ctx, d, err)
	}
	defer conn.Close() // only returns it to the pool
	if _, err := conn.ExecContext(ctx, "BEGIN IMMEDIATE"); err != nil {
		rollback(ctx, conn)
		return definite(ctx, d, err)
	}
	local := context.WithoutCancel(ctx)
	for i, op := range ops {
		if i%commitChecks == 0 {
			err = ctx.Err()
		}
		if err == nil {
			err = d.apply(local, conn, op)
		}
		if err != nil {
			rollback(ctx, conn)
			return definite(ctx, d, err)
		}
	}
	if err := ctx.Err(); err != nil {
		rollback(ctx, conn)
		return definite(ctx, d, err)
	}
	if _, err := conn.ExecContext(local, "COMMIT"); err != nil {
		undone := rollback(ctx, conn)
		if undone && d.classify(err) != failureUnknown {
			return definite(ctx, d, err) // the transaction was still open
		}
		return uncertain(ctx, err)
	}
	return nil
}

func (d *sqliteDialect) apply(ctx context.Context, conn *sql.Conn, op batch.Op) error {
	key, value, old := notNil(op.Key), notNil(op.Value), notNil(op.Old)
	var err error
	var result sql.Result
	switch op.Kind {
	case batch.PutIfNotExist:
		result, err = conn.ExecContext(ctx, sqliteInsert, key, value)
	case batch.CAS:
		result, err = conn.ExecContext(ctx, sqliteSwap, key, value, old)
	case batch.CASOrPut:
		result, err = conn.ExecContext(ctx, sqliteSwapOrPut, key, value, old)
	case batch.Put:
		_, err = conn.ExecContext(ctx, sqlitePut, key, value)
	case batch.Del:
		_, err = conn.ExecContext(ctx, sqliteDelete, key)
	case batch.DelCurrent:
		_, err = conn.ExecContext(ctx, sqliteDeleteIf, key, old)
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
	c := &Conflict{Key: op.Key}
	err = conn.QueryRowContext(ctx, sqliteGet, key).Scan(&c.Value)
	switch {
	case errors.Is(err, sql.ErrNoRows):
	case err != nil:
		return err
	default:
		c.Value = notNil(c.Value)
	}
	return c
}
