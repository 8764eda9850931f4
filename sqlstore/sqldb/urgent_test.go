package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// network makes connections. Those that it has lost answer nothing, and break no call.
type network struct {
	mu         sync.Mutex
	made, lost int
}

func (n *network) Connect(context.Context) (driver.Conn, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.made++
	return networkConn{idleConn{}, n, n.made}, nil
}

func (*network) Driver() driver.Driver { return nil }

// lose loses the connections that were made so far.
func (n *network) lose() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = n.made
}

type networkConn struct {
	idleConn
	of     *network
	number int
}

func (c networkConn) Ping(context.Context) error { return nil }

func (c networkConn) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	c.of.mu.Lock()
	lost := c.number <= c.of.lost
	c.of.mu.Unlock()
	if lost {
		<-ctx.Done()
		return nil, driver.ErrBadConn
	}
	return noRows{}, nil
}

type noRows struct{}

func (noRows) Columns() []string         { return []string{"internal_key", "object_value"} }
func (noRows) Close() error              { return nil }
func (noRows) Next([]driver.Value) error { return io.EOF }

// commits is an engine whose commits are one query.
type commits struct{ named }

func (commits) Classify(error) Failure             { return FailureOther }
func (commits) Retryable(error) bool               { return false }
func (commits) Failed(error)                       {}
func (commits) Reconnects() int64                  { return 0 }
func (commits) Collectors() []prometheus.Collector { return nil }

func (commits) Commit(Info, []sqlstore.Op) (string, Attempt) {
	return "commit_single", func(ctx context.Context, conn *sql.Conn) (bool, error) {
		rows, err := conn.QueryContext(ctx, "commit")
		if err == nil {
			err = errors.Join(rows.Err(), rows.Close())
		}
		return false, err
	}
}

// newNetworkStore returns a store that has lost two connections for reading, and two for writing.
func newNetworkStore(t *testing.T, reads, writes *network, readConns int) *Store {
	db := NewDatabase(nil, slog.New(slog.DiscardHandler), commits{named{name: "fake"}},
		Pools{Read: reads, Write: writes, ReadConns: readConns, WriteConns: 4, Remote: true})
	s := &Store{db: db, info: Info{MaxRow: 1 << 20}, statements: &Statements{}}
	var err error
	s.metrics, err = newMetrics(nil, db)
	require.NoError(t, err)
	s.life, s.end = context.WithCancelCause(context.Background())
	ctx, cancel := context.WithTimeout(t.Context(), spareSoon+time.Millisecond)
	defer cancel()
	db.KeepSpare(ctx, time.Hour)
	require.Equal(t, spare, writes.made)
	reads.lose()
	writes.lose()
	t.Cleanup(func() { require.NoError(t, errors.Join(db.read.Close(), db.write.Close())) })
	return s
}

// TestTimedOutStatementDropsIdleConnections: the network has lost all of them, and the second attempt makes a new one.
func TestTimedOutStatementDropsIdleConnections(t *testing.T) {
	for name, call := range map[string]func(context.Context, *Store) error{
		"read": func(ctx context.Context, s *Store) error {
			_, err := s.MultiGet(ctx, [][]byte{[]byte("k")})
			return err
		},
		"urgent read": func(ctx context.Context, s *Store) error {
			_, err := s.MultiGet(sqlstore.Urgent(ctx), [][]byte{[]byte("k")})
			return err
		},
		"commit": func(ctx context.Context, s *Store) error {
			b := s.BeginBatchWrite()
			b.Put([]byte("k"), []byte("v"))
			return b.Commit(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newNetworkStore(t, &network{}, &network{}, 32)
				attempt := func() error {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					return call(ctx, s)
				}
				require.Error(t, attempt())
				require.NoError(t, attempt())
			})
		})
	}
}

// TestCanceledStatementDropsIdleConnections: a client left that had waited for longer than statements take.
func TestCanceledStatementDropsIdleConnections(t *testing.T) {
	for wait, again := range map[time.Duration]bool{time.Millisecond: false, lateAfter: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newNetworkStore(t, &network{}, &network{}, 32)
			read := func() error {
				ctx, cancel := context.WithCancel(t.Context())
				defer time.AfterFunc(wait, cancel).Stop()
				_, err := s.MultiGet(ctx, [][]byte{[]byte("k")})
				return err
			}
			require.Error(t, read())
			require.Equal(t, again, read() == nil)
		})
	}
}

// TestOverloadedDatabaseGetsFewNewConnections: it answers every statement, but too late.
func TestOverloadedDatabaseGetsFewNewConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes := &network{}
		s := newNetworkStore(t, &network{}, writes, 32)
		began, dropped := time.Now(), 0
		for time.Since(began) < 10*time.Minute {
			s.db.DropIdle()
			conn, err := s.db.write.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, conn.Close())
			made := writes.made
			s.db.dropLate(expired(t), s.db.write, time.Now())
			if conn, err = s.db.write.Conn(t.Context()); err == nil {
				err = conn.Close()
			}
			require.NoError(t, err)
			dropped += writes.made - made
			time.Sleep(500 * time.Millisecond)
		}
		require.LessOrEqual(t, dropped, 26) // pauses of 1 s or more that double, then of 30 s or more
		require.GreaterOrEqual(t, dropped, 10)
		time.Sleep(2 * dropPause.Max)
		require.True(t, s.db.lateWrites.due())
		time.Sleep(dropPause.Min)
		require.True(t, s.db.lateWrites.due(), "the pause begins anew after a while without drops")
	})
}

func expired(t *testing.T) context.Context {
	ctx, cancel := context.WithDeadline(t.Context(), time.Now())
	cancel()
	return ctx
}

// TestUrgentReadsDoNotWaitForOtherReads, which use all connections for reading.
func TestUrgentReadsDoNotWaitForOtherReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newNetworkStore(t, &network{}, &network{}, spare)
		s.db.DropIdle()
		for range spare {
			conn, err := s.db.read.Conn(t.Context())
			require.NoError(t, err)
			defer conn.Close() //nolint:errcheck // it only returns to the pool
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := s.MultiGet(sqlstore.Urgent(ctx), [][]byte{[]byte("k")})
		require.NoError(t, err)
		_, err = s.MultiGet(ctx, [][]byte{[]byte("k")})
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}
