package faultdriver

import (
	"context"
	"database/sql/driver"
)

type stmt struct {
	driver.Stmt
	conn    *conn
	text    string
	execer  driver.StmtExecContext
	queryer driver.StmtQueryContext
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, _, err := under(ctx, s.conn, kindOf(s.text, Exec), s.text, func() (driver.Result, error) { return s.execer.ExecContext(ctx, args) }, nothing)
	if err != nil {
		return nil, err
	}
	return result, nil
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	r, f, err := under(ctx, s.conn, Query, s.text, func() (driver.Rows, error) { return s.queryer.QueryContext(ctx, args) }, driver.Rows.Close)
	return wrapRows(s.conn, r, f, err)
}

// Close implements driver.Stmt. A broken connection has closed it already.
func (s *stmt) Close() error {
	if s.conn.broken {
		return nil
	}
	delete(s.conn.stmts, s)
	return s.Stmt.Close()
}

type tx struct {
	driver.Tx
	conn *conn
}

// Commit implements driver.Tx.
func (t *tx) Commit() error {
	_, _, err := under(context.Background(), t.conn, Commit, "COMMIT", func() (struct{}, error) { return struct{}{}, t.Tx.Commit() }, nothing)
	return err
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	_, _, err := under(context.Background(), t.conn, Rollback, "ROLLBACK", func() (struct{}, error) { return struct{}{}, t.Tx.Rollback() }, nothing)
	return err
}

// rows ends with err after left more rows.
type rows struct {
	driver.Rows
	conn *conn
	err  error
	left int
	cut  bool
	told bool // err was returned
}

func wrapRows(c *conn, base driver.Rows, f Fault, err error) (driver.Rows, error) {
	if err != nil {
		return nil, err
	}
	if f.Rows == nil {
		return base, nil
	}
	return &rows{Rows: base, conn: c, err: f.Rows, left: f.RowsBefore, cut: f.Cut}, nil
}

// Next implements driver.Rows.
func (r *rows) Next(dest []driver.Value) error {
	if r.left == 0 {
		return r.fail()
	}
	r.left--
	return r.Rows.Next(dest)
}

// fail returns err, and cuts the connection if that is due.
func (r *rows) fail() error {
	r.told = true
	if r.cut && !r.conn.broken {
		// Some drivers require that the rows are closed first.
		_ = r.Rows.Close()
		r.conn.cut()
	}
	return r.err
}

// Close implements driver.Rows.
func (r *rows) Close() error {
	if r.conn.broken {
		return nil
	}
	if err := r.Rows.Close(); err != nil || r.left > 0 || r.told {
		return err
	}
	return r.fail()
}
