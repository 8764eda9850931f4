package failover

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// server is a server with one row, and the connections to it.
type server struct {
	answer []string                        // to the question which server it is
	union  func(ctx context.Context) error // delays the answer to a point read
	alone  func(ctx context.Context) error // delays the answer to the question alone
	texts  []string
}

const itself = "db1"

func newServer() *server {
	atOnce := func(context.Context) error { return nil }
	return &server{answer: []string{"0", "0", "7", "3306", itself}, union: atOnce, alone: atOnce}
}

// Connect implements driver.Connector.
func (s *server) Connect(context.Context) (driver.Conn, error) { return &serverConn{server: s}, nil }
func (*server) Driver() driver.Driver                          { return nil }

type serverConn struct {
	sqldb.DriverConn
	server *server
}

func (*serverConn) Close() error                       { return nil }
func (*serverConn) ResetSession(context.Context) error { return nil }

func (c *serverConn) QueryContext(ctx context.Context, text string, _ []driver.NamedValue) (driver.Rows, error) {
	c.server.texts = append(c.server.texts, text)
	switch {
	case !strings.HasPrefix(text, "SELECT @@"):
		rows := &someRows{{[]byte("key"), []byte("value")}}
		if strings.Contains(text, "UNION ALL") {
			*rows = slices.Insert(*rows, 0, []driver.Value{[]byte(""), []byte(strings.Join(c.server.answer, separator))})
			if err := c.server.union(ctx); err != nil {
				return nil, err
			}
		}
		return rows, nil
	case strings.Contains(text, "performance_schema"):
		return nil, &mysql.MySQLError{Number: erTableAccessDenied}
	}
	var row []driver.Value
	for _, v := range c.server.answer {
		row = append(row, v)
	}
	if err := c.server.alone(ctx); err != nil {
		return nil, err
	}
	return &someRows{row}, nil
}

type someRows [][]driver.Value

func (r *someRows) Columns() []string { return make([]string, len((*r)[0])) }
func (r *someRows) Close() error      { return nil }

func (r *someRows) Next(dest []driver.Value) error {
	if len(*r) == 0 {
		return io.EOF
	}
	copy(dest, (*r)[0])
	*r = (*r)[1:]
	return nil
}

// connect returns a connection to s, of which it is known that it has no group.
func connect(t *testing.T, s *server) *conn {
	t.Helper()
	return connectTo(t, ungrouped(), s)
}

// ungrouped returns a Primary that knows that its server has no group.
func ungrouped() *Primary {
	p := New(Config{Logger: slog.New(slog.DiscardHandler), Servers: []string{itself}})
	p.Demand(false)
	p.ungrouped.Store(true)
	p.alone.Store(true)
	return p
}

func connectTo(t *testing.T, p *Primary, s *server) *conn {
	t.Helper()
	opened, err := p.Connector([]*sqldb.Session{{Base: s}}, false).Connect(t.Context())
	require.NoError(t, err)
	return opened.(*conn)
}

// TestAConnectionDialledBeforeAFailoverIsReplaced: it may have reached the server that was the primary before.
func TestAConnectionDialledBeforeAFailoverIsReplaced(t *testing.T) {
	p, s := ungrouped(), newServer()
	s.alone = func(context.Context) error {
		p.GiveUp(ErrNotPrimary) // another connection has met it
		return nil
	}
	require.False(t, connectTo(t, p, s).IsValid(), "the connection is used")
}

func TestAPointReadOfADueConnectionChecksIt(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*server)
		want   error // nil: the rows
		gives  bool  // all connections are given up
		texts  int
	}{
		"the primary": {change: func(*server) {}, texts: 1},
		"it turned read-only": {
			change: func(s *server) { s.answer[0] = "1" },
			want:   driver.ErrBadConn, gives: true, texts: 1,
		},
		"its group has another primary": {
			change: func(s *server) { s.answer = append(s.answer, "no primary") },
			want:   driver.ErrBadConn, gives: true, texts: 1,
		},
		"another server":          {change: func(s *server) { s.answer[4] = "db2" }, want: driver.ErrBadConn, texts: 1},
		"an answer without parts": {change: func(s *server) { s.answer = s.answer[:1] }, want: driver.ErrBadConn, texts: 1},
		"the connection broke": {
			change: func(s *server) { s.union = func(context.Context) error { return io.ErrUnexpectedEOF } },
			want:   driver.ErrBadConn, texts: 1,
		},
		"no answer in time": {
			change: func(s *server) {
				s.union = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			},
			want: driver.ErrBadConn, texts: 1,
		},
		"refused, and asked alone": {
			change: func(s *server) {
				s.union = func(context.Context) error { return &mysql.MySQLError{Number: erTableAccessDenied} }
			},
			texts: 3,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServer()
				conn := connect(t, s)
				read := func() ([]string, error) {
					s.texts = nil
					ctx := sqldb.PointRead(t.Context())
					require.NoError(t, conn.ResetSession(ctx))
					rows, err := conn.QueryContext(ctx, "SELECT internal_key, object_value FROM object", nil)
					if err != nil {
						return nil, err
					}
					var keys []string
					for row := make([]driver.Value, 2); rows.Next(row) == nil; {
						keys = append(keys, string(row[0].([]byte)))
					}
					return keys, rows.Close()
				}
				for _, pass := range []time.Duration{primaryRecheck - 1, 1} { // the second one is due
					time.Sleep(pass)
					keys, err := read()
					require.NoError(t, err)
					require.Equal(t, []string{"key"}, keys)
					require.Len(t, s.texts, 1)
				}
				c.change(s)
				time.Sleep(primaryRecheck)
				keys, err := read()
				require.ErrorIs(t, err, c.want)
				require.Len(t, s.texts, c.texts, "%q", s.texts)
				if err == nil {
					require.Equal(t, []string{"key"}, keys)
				}
				require.Equal(t, c.gives, conn.primary.Lost() > 0, "all connections are given up")
			})
		})
	}
}

func TestACallerThatLeavesAPointReadGetsItsOwnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer()
		s.union = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		conn := connect(t, s)
		time.Sleep(primaryRecheck)
		ctx, cancel := context.WithTimeout(sqldb.PointRead(t.Context()), primaryWait/2)
		defer cancel()
		require.NoError(t, conn.ResetSession(ctx))
		_, err := conn.QueryContext(ctx, "SELECT", nil)
		require.True(t, errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled), err)
		require.NotErrorIs(t, err, driver.ErrBadConn)
	})
}

// pointRead makes a point read.
func pointRead(c *conn) error {
	ctx := sqldb.PointRead(context.Background())
	if err := c.ResetSession(ctx); err != nil {
		return err
	}
	rows, err := c.QueryContext(ctx, "SELECT", nil)
	if err != nil {
		return err
	}
	return rows.Close()
}

// TestALateAnswerIsNotTrusted: the server turns read-only while its answer is under way.
func TestALateAnswerIsNotTrusted(t *testing.T) {
	for _, name := range []string{"to a new connection", "to the question alone", "to a point read"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var late time.Duration
				s := newServer()
				s.union = func(context.Context) error {
					if time.Sleep(late); late > 0 {
						s.answer[0] = "1"
					}
					return nil
				}
				s.alone = s.union
				if name == "to a new connection" {
					late = primaryRecheck
				}
				c := connect(t, s)
				if late == 0 {
					late = primaryRecheck
					time.Sleep(primaryRecheck)
				}
				if name == "to a point read" {
					require.NoError(t, pointRead(c))
				}
				require.ErrorIs(t, c.ResetSession(t.Context()), driver.ErrBadConn)
			})
		})
	}
}

// TestChecksOfASlowServerMayTakeLonger: a server that has too much to do gets less and less new
// connections, until it is in time again.
func TestChecksOfASlowServerMayTakeLonger(t *testing.T) {
	for name, read := range map[string]func(*conn) error{
		"alone":             func(c *conn) error { return c.ResetSession(context.Background()) },
		"with a point read": pointRead,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				answers := time.Duration(1)
				if name == "alone" {
					answers = 2 // a late one is not trusted
				}
				var slow time.Duration
				s := newServer()
				s.union = func(ctx context.Context) error {
					select {
					case <-ctx.Done():
						return ctx.Err()
					case <-time.After(slow):
						return nil
					}
				}
				s.alone = s.union
				c := connect(t, s)
				check := func(takes, want time.Duration, ok bool) {
					t.Helper()
					time.Sleep(primaryRecheck)
					slow = takes
					began := time.Now()
					err := read(c)
					require.Equal(t, want, time.Since(began), "a check that takes %v: %v", takes, err)
					require.Equal(t, ok, err == nil, "a check that takes %v: %v", takes, err)
				}
				replace := func() {
					slow = 0
					next, err := c.primary.Connector([]*sqldb.Session{{Base: s}}, false).Connect(t.Context())
					require.NoError(t, err)
					c = next.(*conn)
				}
				for wait := primaryWait; wait < longestWait; wait *= 2 {
					check(time.Hour, wait, false)
					check(time.Hour, wait, false) // one of the same time waits no longer
					replace()
				}
				check(time.Hour, longestWait, false)
				replace()
				check(time.Hour, longestWait, false)
				replace()
				check(longestWait-1, answers*(longestWait-1), true)
				replace()
				check(longestWait-1, answers*(longestWait-1), true)
				check(primaryWait-1, answers*(primaryWait-1), true)
				replace()
				check(time.Hour, primaryWait, false)
			})
		})
	}
}
