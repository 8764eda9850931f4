package tidbsim

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

// Connector returns a connector to the cluster. Its connections answer as those of
// go-sql-driver do.
func (c *Cluster) Connector() driver.Connector { return connector{c} }

type connector struct{ cluster *Cluster }

// Driver implements driver.Connector.
func (connector) Driver() driver.Driver { return &mysql.MySQLDriver{} }

// errRefused is what dialling a stopped server returns.
var errRefused = fmt.Errorf("tidbsim: connection refused: %w", io.EOF)

// Connect implements driver.Connector.
func (k connector) Connect(ctx context.Context) (driver.Conn, error) {
	c := k.cluster
	if err := retry.Sleep(ctx, c.half()); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.down || c.strike(ConnRefused) {
		return nil, errRefused
	}
	c.lastID++
	s := &session{cluster: c, id: c.lastID, vars: maps.Clone(c.globals)}
	cn := &conn{cluster: c, session: s}
	c.conns[cn] = struct{}{}
	return cn, nil
}

// half returns a half of a statement's time.
func (c *Cluster) half() time.Duration {
	if c.latency <= 0 {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Duration((0.5 + c.rnd.Float64()) * float64(c.latency) / 2)
}

// conn is a client's connection. database/sql lets one goroutine at a time use it; others
// may break it.
type conn struct {
	cluster *Cluster
	session *session
	closed  bool // as the client knows; guarded by the cluster's mutex
}

// breakOff ends the connection as a failure of the network does: the client notices later.
func (cn *conn) breakOff() {
	delete(cn.cluster.conns, cn)
	cn.session.close()
}

// fail closes the connection for both sides.
func (cn *conn) fail() {
	cn.closed = true
	cn.breakOff()
}

// do sends a statement and waits for its answer. text "" is a ping.
func (cn *conn) do(ctx context.Context, text string, args []driver.NamedValue) (*result, error) {
	c := cn.cluster
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	values, size := make([]any, len(args)), len(text)
	for i, a := range args {
		v, n, err := fromClient(a.Value)
		if err != nil {
			return nil, err
		}
		values[i], size = v, size+n
	}
	if size > c.maxPacket() {
		return nil, mysql.ErrPktTooLarge
	}
	compiled, parseErr := c.parsed.get(text)

	c.mu.Lock()
	if cn.closed {
		c.mu.Unlock()
		return nil, driver.ErrBadConn
	}
	f, faulty := c.strikeOne(sendFaults)
	switch {
	case cn.session.gone || faulty && f == BadConn:
		cn.fail()
		c.mu.Unlock()
		return nil, driver.ErrBadConn
	case faulty:
		if f == LostLate && parseErr == nil {
			cn.session.late(compiled, values)
		}
		cn.fail()
		c.mu.Unlock()
		return nil, mysql.ErrInvalidConn
	}
	moved := c.strike(RegionMoved)
	c.mu.Unlock()

	request := c.half()
	if moved {
		request += 100*time.Millisecond + 10*c.half()
	}
	if err := retry.Sleep(ctx, request); err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		if parseErr == nil && c.rnd.IntN(2) == 0 {
			cn.session.late(compiled, values)
		}
		cn.fail()
		return nil, err
	}
	res, lost, err := cn.execute(ctx, compiled, parseErr, values)
	if err != nil {
		return nil, err
	}
	err = retry.Sleep(ctx, c.half())
	if lost {
		err = mysql.ErrInvalidConn
	}
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		cn.fail()
		return nil, err
	}
	return res, nil
}

// execute executes a statement in the server. lost reports that its answer will be lost.
func (cn *conn) execute(ctx context.Context, compiled any, parseErr error,
	args []any) (res *result, lost bool, err error) {
	c := cn.cluster
	c.mu.Lock()
	defer c.mu.Unlock()
	if cn.session.gone {
		cn.fail()
		return nil, false, mysql.ErrInvalidConn
	}
	if parseErr != nil {
		return nil, false, parseErr
	}
	res, err = cn.session.execute(ctx, compiled, args)
	if cn.session.gone {
		cn.fail()
		return nil, false, mysql.ErrInvalidConn
	}
	if err != nil {
		if numberOf(err) == 0 { // the connection closed, or the context ended
			cn.fail()
		}
		return nil, false, err
	}
	return res, c.strike(LostAfter), nil
}

func (c *Cluster) maxPacket() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.globalInt("max_allowed_packet")
}

// fromClient returns an argument as the server reads it, and its bytes.
func fromClient(v driver.Value) (any, int, error) {
	switch v := v.(type) {
	case nil:
		return nil, 4, nil
	case int64:
		return v, 8, nil
	case bool:
		if v {
			return int64(1), 1, nil
		}
		return int64(0), 1, nil
	case []byte:
		if v == nil {
			return nil, 4, nil
		}
		return slices.Clone(v), len(v), nil
	case string:
		return []byte(v), len(v), nil
	}
	return nil, 0, fmt.Errorf("tidbsim: an argument of type %T", v)
}

// ExecContext implements driver.ExecerContext.
func (cn *conn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	res, err := cn.do(ctx, text, args)
	if err != nil {
		return nil, err
	}
	return driver.RowsAffected(res.affected), nil
}

// QueryContext implements driver.QueryerContext.
func (cn *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	res, err := cn.do(ctx, text, args)
	if err != nil {
		return nil, err
	}
	r := &rows{conn: cn, ctx: ctx, columns: res.columns, rows: res.rows, lost: -1}
	cn.cluster.mu.Lock()
	defer cn.cluster.mu.Unlock()
	if len(res.rows) > 0 && cn.cluster.strike(LostRows) {
		r.lost = cn.cluster.rnd.IntN(len(res.rows))
	}
	return r, nil
}

// PrepareContext implements driver.ConnPrepareContext.
func (cn *conn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	if _, err := cn.do(ctx, "", nil); err != nil {
		return nil, err
	}
	if _, err := cn.cluster.parsed.get(text); err != nil {
		return nil, err
	}
	return &stmt{conn: cn, text: text}, nil
}

// Prepare implements driver.Conn.
func (cn *conn) Prepare(text string) (driver.Stmt, error) {
	return cn.PrepareContext(context.Background(), text)
}

// BeginTx implements driver.ConnBeginTx.
func (cn *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if opts.ReadOnly {
		return nil, errors.New("tidbsim: a transaction that only reads is not simulated")
	}
	level := map[sql.IsolationLevel]string{
		sql.LevelDefault: "", sql.LevelReadCommitted: "READ COMMITTED", sql.LevelRepeatableRead: "REPEATABLE READ",
		sql.LevelSerializable: "SERIALIZABLE",
	}
	name, ok := level[sql.IsolationLevel(opts.Isolation)]
	if !ok {
		return nil, fmt.Errorf("mysql: unsupported isolation level: %v", opts.Isolation)
	}
	if name != "" {
		if _, err := cn.do(ctx, "SET TRANSACTION ISOLATION LEVEL "+name, nil); err != nil {
			return nil, err
		}
	}
	if _, err := cn.do(ctx, "START TRANSACTION", nil); err != nil {
		return nil, err
	}
	return tx{cn}, nil
}

// Begin implements driver.Conn.
func (cn *conn) Begin() (driver.Tx, error) {
	return cn.BeginTx(context.Background(), driver.TxOptions{})
}

// Close implements driver.Conn.
func (cn *conn) Close() error {
	cn.cluster.mu.Lock()
	defer cn.cluster.mu.Unlock()
	if !cn.closed {
		cn.fail()
	}
	return nil
}

// Ping implements driver.Pinger.
func (cn *conn) Ping(ctx context.Context) error {
	_, err := cn.do(ctx, "", nil)
	return err
}

// ResetSession implements driver.SessionResetter. go-sql-driver looks whether the server has
// closed the connection when it sends the next statement.
func (cn *conn) ResetSession(context.Context) error {
	if !cn.IsValid() {
		return driver.ErrBadConn
	}
	return nil
}

// IsValid implements driver.Validator.
func (cn *conn) IsValid() bool {
	cn.cluster.mu.Lock()
	defer cn.cluster.mu.Unlock()
	return !cn.closed
}

// stmt is a prepared statement.
type stmt struct {
	conn *conn
	text string
}

func (s *stmt) Close() error  { return nil }
func (s *stmt) NumInput() int { return -1 }

func (s *stmt) Exec([]driver.Value) (driver.Result, error) {
	return nil, errors.New("tidbsim: without a context")
}

func (s *stmt) Query([]driver.Value) (driver.Rows, error) {
	return nil, errors.New("tidbsim: without a context")
}

// ExecContext implements driver.StmtExecContext.
func (s *stmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return s.conn.ExecContext(ctx, s.text, args)
}

// QueryContext implements driver.StmtQueryContext.
func (s *stmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return s.conn.QueryContext(ctx, s.text, args)
}

type tx struct{ conn *conn }

func (t tx) Commit() error {
	_, err := t.conn.do(context.Background(), "COMMIT", nil)
	return err
}

func (t tx) Rollback() error {
	_, err := t.conn.do(context.Background(), "ROLLBACK", nil)
	return err
}

// rows is an answer. If lost is not negative, the connection breaks after so many rows.
type rows struct {
	conn    *conn
	ctx     context.Context
	columns []string
	rows    [][]any
	next    int
	lost    int
}

func (r *rows) Columns() []string { return r.columns }
func (r *rows) Close() error      { return nil }

func (r *rows) Next(dest []driver.Value) error {
	err := r.ctx.Err()
	if err == nil && r.next == r.lost {
		err = mysql.ErrInvalidConn
	}
	if err != nil {
		r.conn.cluster.mu.Lock()
		defer r.conn.cluster.mu.Unlock()
		r.conn.fail()
		return err
	}
	if r.next == len(r.rows) {
		return io.EOF
	}
	for i, v := range r.rows[r.next] {
		dest[i] = toClient(v)
	}
	r.next++
	return nil
}

// toClient returns a value as go-sql-driver does.
func toClient(v any) driver.Value {
	if n, ok := v.(uint64); ok && n <= 1<<63-1 {
		return int64(n)
	}
	return v
}
