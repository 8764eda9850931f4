package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// rollbackWait bounds a ROLLBACK, which runs after the caller's context ended.
const rollbackWait = 2 * time.Second

// rollback ends whatever transaction conn is in. A connection that cannot is
// closed, with which the engine rolls back as well. It reports whether a
// ROLLBACK was executed.
func rollback(ctx context.Context, conn *sql.Conn) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
	defer cancel()
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	if err != nil {
		discard(conn)
	}
	return err == nil
}

// discard makes the pool close conn instead of handing it out again.
func discard(conn *sql.Conn) {
	// The error returned is the one handed in.
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
