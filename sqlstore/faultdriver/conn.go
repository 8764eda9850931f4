package faultdriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// conn is a connection under an injector. database/sql lets one goroutine at a
// time use it.
type conn struct {
	base     sqldb.DriverConn
	injector *Injector
	stmts    map[*stmt]struct{} // open ones
	broken   bool
}

func newConn(base driver.Conn, i *Injector) (*conn, error) {
	complete, ok := base.(sqldb.DriverConn)
	if !ok {
		return nil, fmt.Errorf("faultdriver: a connection of type %T cannot execute, query, prepare and begin "+
			"with a context", base)
	}
	i.count(1)
	return &conn{base: complete, injector: i, stmts: map[*stmt]struct{}{}}, nil
}

// cut closes the connection as a network failure does: its user notices later.
func (c *conn) cut() {
	if c.broken {
		return
	}
	// SQLite keeps a connection, and its locks, as long as it has statements.
	// Whatever fails here, the fault's own error is the one to report.
	for s := range c.stmts {
		_ = s.Close()
	}
	c.broken = true
	_ = c.close()
}

func (c *conn) close() error {
	c.injector.count(-1)
	return c.base.Close()
}

// under runs a statement under its fault. If the statement fails after do, it releases the
// result of do before it cuts the connection.
func under[T any](ctx context.Context, c *conn, kind Kind, text string,
	do func() (T, error), release func(T) error) (result T, f Fault, err error) {
	if c.broken {
		return result, f, driver.ErrBadConn
	}
	f = c.injector.ask(kind, text)
	if err = f.before(ctx); err == nil {
		if result, err = do(); err != nil {
			return result, f, err // the engine's own
		}
		if err = f.after(ctx); err != nil {
			err = errors.Join(err, release(result))
		}
	}
	if err != nil && f.Cut {
		c.cut()
	}
	return result, f, err
}

func nothing[T any](T) error { return nil }

// ExecContext implements driver.ExecerContext.
func (c *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	result, _, err := under(ctx, c, kindOf(text, Exec), text,
		func() (driver.Result, error) { return c.base.ExecContext(ctx, text, args) }, nothing)
	return result, err
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	r, f, err := under(ctx, c, Query, text, func() (driver.Rows, error) { return c.base.QueryContext(ctx, text, args) },
		driver.Rows.Close)
	return wrapRows(c, r, f, err)
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	base, _, err := under(ctx, c, Prepare, text, func() (driver.Stmt, error) { return c.base.PrepareContext(ctx, text) },
		driver.Stmt.Close)
	if err != nil {
		return nil, err
	}
	complete, ok := base.(sqldb.DriverStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("faultdriver: a statement of type %T cannot execute and query with a context",
			base), base.Close())
	}
	s := &stmt{DriverStmt: complete, conn: c, text: text}
	c.stmts[s] = struct{}{}
	return s, nil
}

// Prepare implements driver.Conn.
func (c *conn) Prepare(text string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), text)
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	base, _, err := under(ctx, c, Begin, "BEGIN", func() (driver.Tx, error) { return c.base.BeginTx(ctx, opts) },
		driver.Tx.Rollback)
	if err != nil {
		return nil, err
	}
	return &tx{Tx: base, conn: c}, nil
}

// Begin implements driver.Conn.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}

// Close implements driver.Conn.
func (c *conn) Close() error {
	if c.broken {
		return nil
	}
	c.broken = true
	return c.close()
}

// Ping implements driver.Pinger.
func (c *conn) Ping(ctx context.Context) error {
	if c.broken {
		return driver.ErrBadConn
	}
	return c.base.Ping(ctx)
}

// ResetSession implements driver.SessionResetter.
func (c *conn) ResetSession(ctx context.Context) error {
	if c.broken {
		return driver.ErrBadConn
	}
	return c.base.ResetSession(ctx)
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return !c.broken && c.base.IsValid() }

// CheckNamedValue implements driver.NamedValueChecker.
func (c *conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.base.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

type stmt struct {
	sqldb.DriverStmt
	conn *conn
	text string
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	result, _, err := under(ctx, s.conn, kindOf(s.text, Exec), s.text,
		func() (driver.Result, error) { return s.DriverStmt.ExecContext(ctx, args) }, nothing)
	return result, err
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	r, f, err := under(ctx, s.conn, Query, s.text,
		func() (driver.Rows, error) { return s.DriverStmt.QueryContext(ctx, args) }, driver.Rows.Close)
	return wrapRows(s.conn, r, f, err)
}

// Close implements driver.Stmt. A broken connection has closed it already.
func (s *stmt) Close() error {
	if s.conn.broken {
		return nil
	}
	delete(s.conn.stmts, s)
	return s.DriverStmt.Close()
}

type tx struct {
	driver.Tx
	conn *conn
}

// Commit implements driver.Tx.
func (t *tx) Commit() error {
	return t.end(Commit, "COMMIT", t.Tx.Commit)
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	return t.end(Rollback, "ROLLBACK", t.Tx.Rollback)
}

func (t *tx) end(kind Kind, text string, do func() error) error {
	_, _, err := under(context.Background(), t.conn, kind, text,
		func() (struct{}, error) { return struct{}{}, do() }, nothing)
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
	if err != nil || f.Rows == nil {
		return base, err
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
