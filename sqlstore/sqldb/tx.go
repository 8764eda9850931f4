package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"time"
)

// rollbackWait bounds a ROLLBACK, which runs after the caller's context ended.
const rollbackWait = 2 * time.Second

// Rollback ends conn's transaction, if there is one. If ROLLBACK fails, it closes the
// connection, which makes the engine roll back as well. It reports whether ROLLBACK was
// executed.
func Rollback(ctx context.Context, conn *sql.Conn) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackWait)
	defer cancel()
	_, err := conn.ExecContext(ctx, "ROLLBACK")
	if err != nil {
		Discard(conn)
	}
	return err == nil
}

// Discard makes the pool close conn instead of reusing it.
func Discard(conn *sql.Conn) {
	// The error returned is the one handed in.
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
