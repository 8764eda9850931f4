package failover

import (
	"context"
	"database/sql/driver"
	"errors"
	"time"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Connector returns a connector to the primary, for connections that write or for others. sessions make the
// connections to each server, in the order of Config.Servers.
func (p *Primary) Connector(sessions []*sqldb.Session, write bool) driver.Connector {
	return &connector{primary: p, hosts: hosts{names: p.servers, sessions: sessions}, write: write}
}

type connector struct {
	primary *Primary
	hosts   hosts
	write   bool
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver { return c.hosts.sessions[0].Driver() }

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (driver.Conn, error) {
	era := c.primary.era.Load() // as of before it was dialled
	conn, err := c.hosts.connect(ctx, c.open)
	if err != nil {
		return nil, err
	}
	conn.era = c.primary.admit(conn.server, era)
	if c.write {
		if err := c.primary.settle(ctx); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	return conn, nil
}

// open makes a connection to one server, which it refuses if it is not the primary.
func (c *connector) open(ctx context.Context, s *sqldb.Session) (*conn, error) {
	base, err := s.Open(ctx)
	if err != nil {
		return nil, err
	}
	p := c.primary
	opened := &conn{Conn: base, primary: p, wait: time.Duration(p.wait.Load())}
	if p.demanded.Load() || len(p.servers) > 1 && !p.equals {
		opened.asked = time.Now()
		opened.server, err = p.ask(ctx, base)
	}
	if err == nil && p.demanded.Load() {
		err = p.agree(ctx, base)
	}
	if err != nil {
		return nil, errors.Join(err, base.Close())
	}
	return opened, nil
}

// conn is a connection that the pool replaces once it may not reach the primary. Not
// safe for concurrent use.
type conn struct {
	*sqldb.Conn
	primary *Primary
	era     int64
	server  string        // it was dialled to, "" if it was not asked
	asked   time.Time     // the answer may have been long under way
	wait    time.Duration // how long its check may take
	due     bool          // the next query, which adds no round trip for it, has to ask the server
}

// ResetSession implements driver.SessionResetter. If it fails, the pool replaces the
// connection.
func (c *conn) ResetSession(ctx context.Context) error {
	if err := c.Conn.ResetSession(ctx); err != nil {
		return err
	}
	c.due = false
	switch {
	case !c.current():
		return driver.ErrBadConn
	case c.trusted():
	case sqldb.IsPointRead(ctx):
		c.due = true
	case !c.still(ctx), !c.trusted() && !c.still(ctx): // once more if the answer was late
		return driver.ErrBadConn
	}
	return nil
}

// QueryContext implements driver.QueryerContext.
func (c *conn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if !c.due {
		return c.Conn.QueryContext(ctx, text, args)
	}
	c.due = false
	return c.queryChecked(ctx, text, args)
}

// IsValid implements driver.Validator.
func (c *conn) IsValid() bool { return c.current() && c.Conn.IsValid() }

// current reports whether the connection is of the present era.
func (c *conn) current() bool { return c.era == c.primary.era.Load() }

// trusted reports whether the server need not be asked again.
func (c *conn) trusted() bool {
	return !c.primary.demanded.Load() || time.Since(c.asked) < primaryRecheck
}

// still asks the server, and reports whether the connection may be used.
func (c *conn) still(ctx context.Context) bool {
	bounded, cancel := context.WithTimeout(ctx, c.wait)
	defer cancel()
	began := time.Now()
	server, err := c.primary.ask(bounded, c.Conn)
	if ctx.Err() == nil && bounded.Err() != nil {
		c.late()
	}
	return c.answered(began, server, err)
}

// late takes in that a check took too long. Connections that were made before keep their bound, so
// that a server that does not answer at all is left as soon as ever.
func (c *conn) late() { c.primary.wait.Store(int64(min(2*c.wait, longestWait))) }

// answered takes in the answer to a check that began at a time, and reports whether the connection may
// be used.
func (c *conn) answered(began time.Time, server string, err error) bool {
	if err != nil {
		if errors.Is(err, ErrNotPrimary) {
			c.primary.GiveUp(err)
		}
		return false
	}
	c.asked = began
	if time.Since(began) < primaryWait {
		c.primary.wait.Store(int64(primaryWait))
	}
	return c.primary.agrees(server)
}
