package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// ordinaryUser makes a user that may do everything with the database of rootURL,
// and nothing else: read_only holds for it, as it does not for root.
func ordinaryUser(t *testing.T, rootURL string) string {
	t.Helper()
	u, err := url.Parse(rootURL)
	require.NoError(t, err)
	enginetest.Exec(t, rootURL, "CREATE USER app@'%' IDENTIFIED BY 'secret'")
	enginetest.Exec(t, rootURL, "GRANT ALL ON `"+strings.TrimPrefix(u.Path, "/")+"`.* TO app@'%'")
	u.User = url.UserPassword("app", "secret")
	return u.String()
}

// writers are the two ways to commit, each a step of its own.
var writers = map[string]func(ctx context.Context, s sqlstore.Store) error{
	"one statement": func(ctx context.Context, s sqlstore.Store) error {
		value, err := s.Get(ctx, coder.FenceKey())
		if err != nil {
			return fmt.Errorf("reading: %w", err)
		}
		c, err := coder.DecodeFenceToken(value)
		if err != nil {
			return err
		}
		return swapFence(ctx, s, c.Sequence+1)
	},
	"transaction": func(ctx context.Context, s sqlstore.Store) error {
		b := s.BeginBatchWrite()
		b.Put([]byte("put"), []byte("x"))
		return b.Commit(ctx)
	},
}

// unavailable fails the test unless err is the definite error of a server that
// takes no writes.
func unavailable(t *testing.T, what string, err error) {
	t.Helper()
	require.ErrorIs(t, err, sqlstore.ErrUnavailable, what)
	require.NotErrorIs(t, err, sqlstore.ErrUncertain, what)
	require.ErrorContains(t, err, "read-only", what)
}

func TestServerTurnsReadOnly(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		if !p.Can(enginetest.Replicas) {
			t.Skip("its servers are equals")
		}
		server := p.StartServer(t)
		registry := prometheus.NewRegistry()
		s := openURL(t, ordinaryUser(t, server.URL()), sqlstore.Options{Registerer: registry})
		createFence(t, s)
		ctx := context.Background()
		for name, write := range writers {
			require.NoError(t, write(ctx, s))
			held, err := s.Get(ctx, coder.FenceKey())
			require.NoError(t, err)
			enginetest.Exec(t, server.URL(), "SET GLOBAL read_only = 1")
			b := s.BeginBatchWrite()
			b.Put([]byte("refused"), []byte("x"))
			b.Put(coder.FenceKey(), fenceToken(99))
			if name == "one statement" {
				b = s.BeginBatchWrite()
				b.PutIfNotExist([]byte("refused"), []byte("x"))
			}
			unavailable(t, name, b.Commit(ctx))
			// The connections are gone, and none that reads is made either: this may
			// be a replica by now, and behind.
			for range 3 {
				unavailable(t, name+", again", writers["transaction"](ctx, s))
				_, err := s.Get(ctx, coder.FenceKey())
				unavailable(t, name+", read", err)
			}

			enginetest.Exec(t, server.URL(), "SET GLOBAL read_only = 0")
			values, err := s.MultiGet(ctx, [][]byte{coder.FenceKey(), []byte("refused")})
			require.NoError(t, err)
			require.Equal(t, [][]byte{held, nil}, values, "%s: what the refused commit left", name)
			require.NoError(t, write(ctx, s), "%s, writable again", name)
		}
		failures, reconnects := gathered(t, registry, "sqlbrain_sql_failures_total"),
			gathered(t, registry, "sqlbrain_sql_reconnects_total")
		require.GreaterOrEqual(t, failures["read_only"], 2.0)
		require.GreaterOrEqual(t, reconnects[""], 1.0)

		// Who only reads finds out as well.
		for name, read := range map[string]func(context.Context) error{
			"get":      func(ctx context.Context) error { _, err := s.Get(ctx, coder.FenceKey()); return err },
			"multiget": func(ctx context.Context) error { _, err := s.MultiGet(ctx, [][]byte{coder.FenceKey()}); return err },
		} {
			enginetest.Exec(t, server.URL(), "SET GLOBAL read_only = 0")
			limit, cancel := context.WithTimeout(ctx, eventually.Deadline)
			defer cancel()
			for range 2 { // with the connection that the first one made, and its statements
				require.NoError(t, read(limit), "%s, writable again", name)
				time.Sleep(300 * time.Millisecond) // then the connection is due for a check
			}
			enginetest.Exec(t, server.URL(), "SET GLOBAL read_only = 1")
			for {
				if err := read(limit); err != nil {
					unavailable(t, "reading only, "+name, err)
					break
				}
			}
		}
	})
}

// gathered returns the counters of a name by the value of their last label.
func gathered(t *testing.T, registry *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	values := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				label := ""
				for _, l := range m.GetLabel() {
					label = l.GetValue()
				}
				values[label] += m.GetCounter().GetValue()
			}
		}
	}
	return values
}

// TestAnotherServerAnswers: behind the name in the URL another server takes over.
func TestAnotherServerAnswers(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		if !p.Can(enginetest.Replicas) {
			t.Skip("its servers are equals")
		}
		old, promoted := p.StartServer(t), p.StartServer(t)
		ctx := context.Background()
		// What a replica would have got, and a row that tells the servers apart.
		for name, server := range map[string]*enginetest.Server{"old": old, "promoted": promoted} {
			ordinaryUser(t, server.URL())
			w := openURL(t, server.URL(), sqlstore.Options{})
			createFence(t, w)
			b := w.BeginBatchWrite()
			b.Put([]byte("server"), []byte(name))
			require.NoError(t, b.Commit(ctx))
		}
		var target atomic.Value // of new connections
		target.Store(parse(t, old.URL()).Address)
		at := enginetest.Forward(t, func() string { return target.Load().(string) })
		s, err := open(ctx, parse(t, "mysql://app:secret@"+at+"/sqlbrain"), sqlstore.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		reached := func() string {
			t.Helper()
			value, err := s.Get(ctx, []byte("server"))
			require.NoError(t, err)
			return string(value)
		}
		step := func(n int64) error { return swapFence(ctx, s, n) }
		require.NoError(t, step(2))
		require.Equal(t, "old", reached())

		t.Run("in order", func(t *testing.T) {
			enginetest.Exec(t, old.URL(), "SET GLOBAL read_only = 1")
			target.Store(parse(t, promoted.URL()).Address)
			// It finds out by the refusal, or, a while after the last one, by asking
			// before it begins; then the promoted server refuses what it never got.
			if err := step(3); !sqlstore.IsConflict(err) {
				unavailable(t, "the write that finds out", err)
			}
			require.Equal(t, "promoted", reached())
			require.NoError(t, step(2), "it never got the first")
		})
		t.Run("though the old one goes on", func(t *testing.T) {
			enginetest.Exec(t, old.URL(), "SET GLOBAL read_only = 0")
			// Only the connections that write break, of which there may be a spare one; those that read are alive.
			var writing []*sql.Conn
			for range 2 {
				conn, err := s.Database().SQL().Conn(ctx)
				require.NoError(t, err)
				writing = append(writing, conn)
			}
			target.Store(parse(t, old.URL()).Address)
			for _, conn := range writing {
				_, err = conn.ExecContext(ctx, "KILL CONNECTION_ID()")
				require.Error(t, err, "KILL answered")
				_ = conn.Close() // it is broken
			}
			limit, cancel := context.WithTimeout(ctx, eventually.Deadline)
			defer cancel()
			for err := step(3); err != nil && limit.Err() == nil; err = step(3) {
				if !errors.Is(err, sqlstore.ErrUnavailable) && !errors.Is(err, sqlstore.ErrUncertain) {
					t.Fatal(err)
				}
			}
			require.Equal(t, "old", reached(), "as writes do")
		})
	})
}

// TestErrorsThatGiveUpTheConnections: behind them another server is looked for.
func TestErrorsThatGiveUpTheConnections(t *testing.T) {
	t.Parallel()
	for number, want := range map[uint16]float64{
		1290: 1, 1836: 1, 1792: 1, 1874: 1, 1047: 1, 1053: 1, 3100: 1, 3032: 1, 3797: 1,
		1213: 0, 1205: 0, 1040: 0, 1317: 0, 1062: 0, 9001: 0,
	} {
		registry, faults := prometheus.NewRegistry(), faultdriver.New()
		s := openURL(t, enginetest.Database(t), sqlstore.Options{Registerer: registry, WrapConnector: faults.Wrap})
		createFence(t, s)
		faults.Set(func(st faultdriver.Statement) faultdriver.Fault {
			if st.Kind != faultdriver.Exec || strings.HasPrefix(st.Text, "SET ") {
				return faultdriver.Fault{}
			}
			return faultdriver.Fault{Before: &mysql.MySQLError{Number: number, Message: "injected"}}
		})
		require.Error(t, swapFence(t.Context(), s, 2), number)
		faults.Set(nil)
		require.Equal(t, want, gathered(t, registry, "sqlbrain_sql_reconnects_total")[""], number)
		require.Equal(t, want == 1, faults.Conns() == 0, "error %d: connections are closed", number)
		require.NoError(t, swapFence(t.Context(), s, 2), "behind error %d", number)
		counted, err := testutil.GatherAndCount(registry, "sqlbrain_sql_failures_total")
		require.NoError(t, err)
		require.Equal(t, number != 1062, counted > 0, "error %d is counted", number)
	}
}
