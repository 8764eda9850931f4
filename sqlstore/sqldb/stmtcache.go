package sqldb

import (
	"container/list"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// Statements with placeholders are prepared once per connection and kept. Measured on
// MariaDB, a commit is 1.4 to 1.7 times as fast as with interpolated text, and SQLite
// parses nothing twice. Preparing a statement for a single use is the slowest way of all, and a round trip more.
// Therefore a large statement, and any on a server, is prepared only when it appears for the second time, and
// the cache is bounded by the placeholders of its statements, which are what they cost the
// server.
const (
	// cacheBudget bounds the placeholders of the statements one connection
	// keeps; MariaDB takes about half a kilobyte for each.
	cacheBudget = 32 << 10
	// cacheMost bounds the placeholders of a statement that is prepared.
	cacheMost = cacheBudget / 4
	// cacheSeen bounds the texts remembered as seen once.
	cacheSeen = 512
)

// DriverConn is what a driver's connection must implement.
type DriverConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// DriverStmt is what a driver's statement must implement.
type DriverStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

// Conn is a connection that keeps its prepared statements. Not safe for concurrent use;
// database/sql lets one goroutine at a time use a connection.
type Conn struct {
	DriverConn
	byText map[string]*list.Element // of *cachedStmt
	recent *list.List               // most recently used first
	cost   int
	seen   map[string]struct{}
	// atOnce and unprepared are those of the Session.
	atOnce     int
	unprepared func(error) bool
}

type cachedStmt struct {
	text string
	cost int
	stmt DriverStmt
}

func newConn(base driver.Conn) (*Conn, error) {
	c, ok := base.(DriverConn)
	if !ok {
		return nil, fmt.Errorf("sqldb: a connection of type %T cannot execute, query and prepare with a context", base)
	}
	return &Conn{DriverConn: c, byText: map[string]*list.Element{}, recent: list.New(), seen: map[string]struct{}{}}, nil
}

// ExecContext implements driver.ExecerContext.
func (c *Conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	s, err := c.statement(ctx, text, len(args))
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.DriverConn.ExecContext(ctx, text, args)
	}
	result, err := s.stmt.ExecContext(ctx, args)
	return result, c.after(s, err)
}

// ExecPrepared executes a statement without placeholders, which it prepares and keeps as well.
func (c *Conn) ExecPrepared(ctx context.Context, text string) (driver.Result, error) {
	s, err := c.statement(ctx, text, 1) // it counts as one placeholder
	if err != nil {
		return nil, err
	}
	var args []driver.NamedValue // none
	result, err := s.stmt.ExecContext(ctx, args)
	return result, c.after(s, err)
}

// QueryContext implements driver.QueryerContext.
func (c *Conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	s, err := c.statement(ctx, text, len(args))
	if err != nil {
		return nil, err
	}
	if s == nil {
		return c.DriverConn.QueryContext(ctx, text, args)
	}
	rows, err := s.stmt.QueryContext(ctx, args)
	if err = c.after(s, err); err != nil {
		return nil, err
	}
	return rows, nil
}

// statement returns the prepared statement for text; nil if the text should be sent
// unprepared. Preparing changes nothing. Its errors are marked, so that a connection lost
// while preparing does not count as a commit of unknown outcome.
func (c *Conn) statement(ctx context.Context, text string, cost int) (*cachedStmt, error) {
	if e, ok := c.byText[text]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*cachedStmt), nil
	}
	if cost == 0 || cost > cacheMost {
		return nil, nil
	}
	if _, again := c.seen[text]; cost > c.atOnce && !again {
		if len(c.seen) == cacheSeen {
			clear(c.seen)
		}
		c.seen[text] = struct{}{}
		return nil, nil
	}
	base, err := c.DriverConn.PrepareContext(ctx, text)
	if err != nil {
		if c.unprepared != nil && c.unprepared(err) {
			return nil, nil
		}
		return nil, &prepareError{err}
	}
	stmt, ok := base.(DriverStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("sqldb: a statement of type %T cannot execute and query with a context", base),
			base.Close())
	}
	s := &cachedStmt{text: text, cost: cost, stmt: stmt}
	delete(c.seen, text)
	c.byText[text] = c.recent.PushFront(s)
	c.cost += cost
	for c.cost > cacheBudget {
		if err := c.drop(c.recent.Back()); err != nil {
			return nil, &prepareError{err}
		}
	}
	return s, nil
}

// after drops s if err is an error of s, because the server may have lost s. It returns err.
func (c *Conn) after(s *cachedStmt, err error) error {
	if err == nil {
		return nil
	}
	if e, ok := c.byText[s.text]; ok {
		// The connection that cannot close a statement is broken, and err or
		// the next statement says so.
		_ = c.drop(e)
	}
	return err
}

func (c *Conn) drop(e *list.Element) error {
	s := c.recent.Remove(e).(*cachedStmt)
	delete(c.byText, s.text)
	c.cost -= s.cost
	return s.stmt.Close()
}

// Close implements driver.Conn.
func (c *Conn) Close() error {
	var errs []error
	for c.recent.Len() > 0 {
		errs = append(errs, c.drop(c.recent.Back()))
	}
	err := errors.Join(append(errs, c.DriverConn.Close())...)
	if errors.Is(err, driver.ErrBadConn) {
		return nil // the server had ended the connection: nothing is left to close
	}
	return err
}

// CheckNamedValue implements driver.NamedValueChecker.
func (c *Conn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.DriverConn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// prepareError marks an error that came before the statement was executed.
type prepareError struct{ err error }

func (e *prepareError) Error() string { return "prepare: " + e.err.Error() }
func (e *prepareError) Unwrap() error { return e.err }
