package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
)

// sessionConnector sets up every new connection with statements, so that no
// connection is ever used without them, and gives it a statement cache.
type sessionConnector struct {
	driver.Connector
	statements []string
}

func (c *sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	cached, err := newCachedConn(conn)
	if err == nil {
		for _, statement := range c.statements {
			if _, err = cached.exec.ExecContext(ctx, statement, nil); err != nil {
				err = fmt.Errorf("set up the session with %q: %w", statement, err)
				break
			}
		}
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return cached, nil
}
