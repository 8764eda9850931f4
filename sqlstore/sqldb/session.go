package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
)

// Session is a connector that sets up every new connection, so that no connection is
// ever used without its settings, and gives it a statement cache.
type Session struct {
	// Base makes the connections.
	Base driver.Connector
	// Statements are executed on each new connection.
	Statements []string
	// Together, if set, has the effect of the first of Statements, as many as Joined, in one round trip. If a server
	// refuses it, they are sent one by one afterwards.
	Together string
	Joined   int
	apart    atomic.Bool
	// MayRefuse reports whether a session can do without a statement that failed;
	// nil: without none.
	MayRefuse func(statement string, err error) bool
	// AtOnce is up to how many placeholders a statement is prepared when it first appears. A larger one is prepared when
	// it comes for the second time.
	AtOnce int
	// Unprepared reports whether a statement that was not prepared because of err can be
	// sent as text; nil: none.
	Unprepared func(err error) bool
}

// Driver implements driver.Connector.
func (s *Session) Driver() driver.Driver { return s.Base.Driver() }

// Connect implements driver.Connector.
func (s *Session) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	return conn, nil
}

// Open is Connect with the connection's type.
func (s *Session) Open(ctx context.Context) (*Conn, error) {
	base, err := s.Base.Connect(ctx)
	if err != nil {
		return nil, err
	}
	conn, err := newConn(base)
	if err == nil {
		conn.atOnce, conn.unprepared = s.AtOnce, s.Unprepared
		err = s.setUp(ctx, conn)
	}
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	return conn, nil
}

func (s *Session) setUp(ctx context.Context, conn *Conn) error {
	rest, apart := s.Statements, s.apart.Load()
	if s.Together != "" && !apart {
		if _, err := conn.DriverConn.ExecContext(ctx, s.Together, nil); err == nil {
			rest = rest[s.Joined:]
		} else {
			apart = true
		}
	}
	for _, statement := range rest {
		_, err := conn.DriverConn.ExecContext(ctx, statement, nil)
		if err != nil && (s.MayRefuse == nil || !s.MayRefuse(statement, err)) {
			return fmt.Errorf("set up the session with %q: %w", statement, err)
		}
	}
	s.apart.Store(apart) // only now: a connection that broke refuses them as well
	return nil
}
