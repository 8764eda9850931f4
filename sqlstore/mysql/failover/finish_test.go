package failover

import (
	"context"
	"database/sql/driver"
	"io"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// slowly makes connections that take a while.
type slowly struct {
	driver.Connector
	takes         atomic.Int64
	begun, closed atomic.Int64
	made          atomic.Pointer[slowConn] // last
}

type slowConn struct {
	driver.Conn
	by     *slowly
	stale  atomic.Bool
	former atomic.Bool // its server is no longer the primary
	resets int
}

func (c *slowConn) IsValid() bool { return !c.stale.Load() }

func (c *slowConn) ResetSession(context.Context) error {
	if c.resets++; c.former.Load() {
		return driver.ErrBadConn
	}
	return nil
}

func (c *slowConn) Close() error { c.by.closed.Add(1); return nil }

func (s *slowly) Connect(ctx context.Context) (driver.Conn, error) {
	s.begun.Add(1)
	select {
	case <-time.After(time.Duration(s.takes.Load())):
		c := &slowConn{by: s}
		s.made.Store(c)
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// finishes runs f with a connector that finishes connections of a server that takes so long.
func finishes(t *testing.T, takes time.Duration,
	f func(s *slowly, connect func(deadline time.Duration) (*slowConn, error))) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowly{}
		s.takes.Store(int64(takes))
		c := Finishing(s)
		f(s, func(deadline time.Duration) (*slowConn, error) {
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			conn, err := c.Connect(ctx)
			if err != nil {
				return nil, err
			}
			return conn.(*slowConn), nil
		})
		began := time.Now()
		require.NoError(t, c.(io.Closer).Close())
		require.Zero(t, time.Since(began))
		_, err := c.Connect(t.Context())
		require.ErrorIs(t, err, errClosed)
	})
}

func TestAConnectionIsFinishedForTheNextCaller(t *testing.T) {
	finishes(t, 5*time.Second, func(s *slowly, connect func(time.Duration) (*slowConn, error)) {
		for range 2 {
			_, err := connect(2 * time.Second)
			require.ErrorIs(t, err, context.DeadlineExceeded, "before the connection is there")
		}
		for _, want := range []struct {
			resets int
			begun  int64
		}{{1, 1}, {0, 2}} {
			conn, err := connect(10 * time.Second)
			require.NoError(t, err)
			require.Equal(t, want.resets, conn.resets)
			require.Equal(t, want.begun, s.begun.Load())
		}
	})
}

// A server that does not answer is not waited for: another one may be reached by now.
func TestAConnectionThatIsNotFinishedIsGivenUp(t *testing.T) {
	finishes(t, time.Hour, func(s *slowly, connect func(time.Duration) (*slowConn, error)) {
		began := time.Now()
		for s.begun.Load() < 2 {
			_, _ = connect(time.Second)
			s.takes.Store(0)
		}
		require.Equal(t, time.Second+leftFor, time.Since(began), "a new attempt")
	})
}

func TestALeftConnectionThatIsOfNoUseIsReplaced(t *testing.T) {
	for name, spoil := range map[string]func(*slowly){
		"of an earlier era":                         func(s *slowly) { s.made.Load().stale.Store(true) },
		"of a server that is no longer the primary": func(s *slowly) { s.made.Load().former.Store(true) },
		"too old": func(*slowly) { time.Sleep(leftOver) },
	} {
		t.Run(name, func(t *testing.T) {
			finishes(t, 2*time.Second, func(s *slowly, connect func(time.Duration) (*slowConn, error)) {
				_, _ = connect(time.Second)
				time.Sleep(2 * time.Second) // it is there
				synctest.Wait()
				spoil(s)
				conn, err := connect(time.Minute)
				require.NoError(t, err)
				require.False(t, conn.stale.Load() || conn.former.Load())
				require.Equal(t, []int64{2, 1}, []int64{s.begun.Load(), s.closed.Load()}, "attempts, closed")
			})
		})
	}
}

func TestCloseClosesWhatNoCallerHasTaken(t *testing.T) {
	var s *slowly
	finishes(t, 2*time.Second, func(server *slowly, connect func(time.Duration) (*slowConn, error)) {
		s = server
		_, _ = connect(time.Second)
		time.Sleep(2 * time.Second)
		synctest.Wait()
	})
	require.Equal(t, []int64{1, 1}, []int64{s.begun.Load(), s.closed.Load()}, "made, closed")
	finishes(t, time.Hour, func(server *slowly, connect func(time.Duration) (*slowConn, error)) {
		s = server
		_, _ = connect(time.Second)
	})
	require.Equal(t, []int64{1, 0}, []int64{s.begun.Load(), s.closed.Load()}, "attempts, closed")
}
