package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jmoiron/sqlx"
	"github.com/stretchr/testify/require"
)

// idle makes connections that do nothing. It cannot be reached while down is set.
type idle struct {
	mu   sync.Mutex
	down bool
	made int
}

func (i *idle) Connect(context.Context) (driver.Conn, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.down {
		return nil, errors.New("unreachable")
	}
	i.made++
	return idleConn{i}, nil
}

func (*idle) Driver() driver.Driver { return nil }

type idleConn struct{ of *idle }

func (idleConn) Prepare(string) (driver.Stmt, error) { return nil, errors.ErrUnsupported }
func (idleConn) Begin() (driver.Tx, error)           { return nil, errors.ErrUnsupported }
func (idleConn) Close() error                        { return nil }

func (c idleConn) Ping(context.Context) error {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if c.of.down {
		return driver.ErrBadConn
	}
	return nil
}

// TestSpareConnectionsDoNotHoldWhatCallsNeed: of a pool that has no two that are idle.
func TestSpareConnectionsDoNotHoldWhatCallsNeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &idle{}
		db := NewDatabase(nil, slog.New(slog.DiscardHandler), named{name: "fake"},
			Pools{Read: server, Write: server, ReadConns: 1, WriteConns: spare})
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { db.KeepSpare(ctx, 20*time.Second) })
		held, err := db.write.Conn(ctx)
		require.NoError(t, err)
		for range 100 {
			time.Sleep(time.Second)
			for _, pool := range []*sqlx.DB{db.read, db.write} {
				bounded, end := context.WithTimeout(ctx, time.Millisecond)
				conn, err := pool.Conn(bounded)
				require.NoError(t, err)
				require.NoError(t, conn.Close())
				end()
			}
		}
		cancel()
		work.Wait()
		require.NoError(t, errors.Join(held.Close(), db.read.Close(), db.write.Close()))
	})
}

// TestASpareConnectionIsKept: the pools close what is idle, and whoever then needs a connection waits for a new one.
func TestASpareConnectionIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every, closed = 20 * time.Second, 30 * time.Second
		server := &idle{}
		db := NewDatabase(nil, slog.New(slog.DiscardHandler), named{name: "fake"}, Pools{
			Read: server, Write: server, ReadConns: 32, WriteConns: 4, MaxIdleTime: closed,
		})
		ctx, cancel := context.WithCancel(t.Context())
		var work sync.WaitGroup
		work.Go(func() { db.KeepSpare(ctx, every) })
		open := func() []int { return []int{db.read.Stats().OpenConnections, db.write.Stats().OpenConnections} }
		time.Sleep(spareSoon)
		for range 20 {
			synctest.Wait()
			require.Equal(t, []int{spare, spare}, open())
			time.Sleep(every)
		}
		require.Equal(t, 2*spare, server.made, "connections are kept, not replaced")
		set := func(down bool) {
			server.mu.Lock()
			defer server.mu.Unlock()
			server.down = down
		}
		set(true)
		time.Sleep(2 * every)
		synctest.Wait()
		set(false)
		time.Sleep(every)
		synctest.Wait()
		require.Equal(t, []int{spare, spare}, open(), "after the database was away")
		cancel()
		work.Wait()
		require.NoError(t, errors.Join(db.read.Close(), db.write.Close()))
	})
}
