package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

var errLost = errors.New("bad connection") // as MySQL's driver has it, without a name

// lostConn is a connection that was lost while it was idle.
type lostConn struct{ driver.Conn }

func (lostConn) Close() error { return errLost }

type lostConnector struct{ driver.Connector }

func (lostConnector) Connect(context.Context) (driver.Conn, error) { return lostConn{}, nil }

// named is an engine of which only the name matters.
type named struct {
	Engine
	name string
}

func (n named) Name() string { return n.name }

// A server that stops must not fail because the network cut an idle connection before.
func TestClosingALostConnectionOfAServerIsNoError(t *testing.T) {
	for dialect, want := range map[string]error{sqlstore.DialectMySQL: nil, sqlstore.DialectSQLite: errLost} {
		db := NewDatabase(&sqlstore.URL{Dialect: dialect}, slog.New(slog.DiscardHandler), named{name: dialect},
			Pools{Read: lostConnector{}, Write: lostConnector{}, ReadConns: 1, WriteConns: 1})
		conn, err := db.Write().Connx(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.Close()) // it is idle now
		require.ErrorIs(t, db.Close(), want, dialect)
	}
}
