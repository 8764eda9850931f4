package sqldb

import (
	"container/list"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// closing is a connection whose Close returns err.
type closing struct {
	DriverConn
	err error
}

func (c closing) Close() error { return c.err }

// Closing a store must not fail because the database ended an idle connection before.
func TestConnThatTheServerEndedClosesWithoutError(t *testing.T) {
	other := errors.New("other")
	for _, c := range []struct{ err, want error }{{driver.ErrBadConn, nil}, {nil, nil}, {other, other}} {
		conn := &Conn{DriverConn: closing{err: c.err}, recent: list.New()}
		require.ErrorIs(t, conn.Close(), c.want)
	}
}
