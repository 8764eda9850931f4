package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"
)

// sessionConnector sets up every new connection with statements, so that no
// connection is ever used without them, and gives it a statement cache. It
// refuses one that does not reach the primary.
type sessionConnector struct {
	hosts      *hosts
	statements []string
	// mayRefuse reports whether a session can do without a statement that failed.
	mayRefuse func(statement string, err error) bool
	primary   *primary // nil if there is only one server, as on SQLite
}

// Driver implements driver.Connector.
func (c *sessionConnector) Driver() driver.Driver { return c.hosts.connectors[0].Driver() }

// Connect implements driver.Connector.
func (c *sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	var era int64
	if c.primary != nil {
		era = c.primary.era.Load() // as of before it was dialled
	}
	conn, err := c.hosts.connect(ctx, c.open)
	if err != nil {
		return nil, err
	}
	if c.primary != nil {
		conn.primary.era = c.primary.admit(conn.primary.server, era)
	}
	return conn, nil
}

// open makes a connection to one server.
func (c *sessionConnector) open(ctx context.Context, base driver.Connector) (*cachedConn, error) {
	conn, err := base.Connect(ctx)
	if err != nil {
		return nil, err
	}
	cached, err := newCachedConn(conn)
	if err == nil {
		for _, statement := range c.statements {
			if _, err = cached.exec.ExecContext(ctx, statement, nil); err != nil && c.mayRefuse(statement, err) {
				err = nil
			}
			if err != nil {
				err = fmt.Errorf("set up the session with %q: %w", statement, err)
				break
			}
		}
	}
	if err == nil && c.primary != nil {
		cached.primary.primary = c.primary
		if c.primary.demanded.Load() || c.hosts.several() && !c.primary.equals {
			cached.primary.server, err = c.primary.ask(ctx, cached.query)
			cached.primary.asked = time.Now()
		}
		if err == nil && c.primary.demanded.Load() {
			err = c.primary.agree(ctx, cached)
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return cached, nil
}
