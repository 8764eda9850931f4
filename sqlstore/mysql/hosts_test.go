package mysql

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestTheHostThatTakesWritesIsUsed: of several hosts, whichever it is, and however
// the other one left.
func TestTheHostThatTakesWritesIsUsed(t *testing.T) {
	t.Parallel()
	servers := map[string]*enginetest.Server{"first": enginetest.StartServer(t), "second": enginetest.StartServer(t)}
	ctx := context.Background()
	for name, server := range servers {
		ordinaryUser(t, server.URL())
		migrate(t, server.URL())
		w, err := open(ctx, parse(t, server.URL()), sqlstore.Options{})
		require.NoError(t, err)
		b := w.BeginBatchWrite()
		b.Put([]byte("server"), []byte(name))
		require.NoError(t, errors.Join(b.Commit(ctx), w.Close()))
	}
	readOnly := func(name, value string) {
		t.Helper()
		enginetest.Exec(t, servers[name].URL(), "SET GLOBAL read_only = "+value)
	}
	readOnly("first", "1")
	u := parse(t, "mysql://app:secret@"+parse(t, servers["first"].URL()).Address+","+parse(t,
		servers["second"].URL()).Address+"/sqlbrain?timeout=10s")
	s, err := open(ctx, u, sqlstore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	// reaches waits until commits and reads are answered by a server.
	reaches := func(name string) {
		t.Helper()
		limit, cancel := context.WithTimeout(ctx, eventually.Deadline)
		defer cancel()
		for {
			b := s.BeginBatchWrite()
			b.Put([]byte("written"), []byte(name))
			err := b.Commit(limit)
			if err == nil {
				break
			}
			require.NoError(t, limit.Err(), "no commit on the %s server: %v", name, err)
			require.True(t, errors.Is(err, sqlstore.ErrUnavailable) || errors.Is(err, sqlstore.ErrUncertain), err)
		}
		for range 40 { // every connection there is
			value, err := s.Get(limit, []byte("server"))
			require.NoError(t, err)
			require.Equal(t, name, string(value), "reads are answered by another server than commits")
		}
	}
	reaches("second")

	readOnly("second", "1")
	readOnly("first", "0")
	reaches("first")

	readOnly("second", "0")
	reaches("first") // where it is already
	servers["first"].Kill()
	reaches("second")

	servers["first"].Start()
	servers["second"].Pause()
	reaches("first")

	servers["second"].Resume()
	readOnly("second", "1")
	readOnly("first", "1")
	b := s.BeginBatchWrite()
	b.Put([]byte("refused"), []byte("x"))
	err = b.Commit(ctx)
	unavailable(t, "while none takes writes", err)
	for _, address := range u.Addresses() {
		_, err := open(ctx, u, sqlstore.Options{})
		require.ErrorContains(t, err, address)
	}
}

// TestReadsAfterASwitchover: a process that has just checked its connections, and does not commit, reads what another one
// has committed on the new primary.
func TestReadsAfterASwitchover(t *testing.T) {
	t.Parallel()
	first, second := enginetest.StartServer(t), enginetest.StartServer(t)
	ctx := t.Context()
	put := func(s sqlstore.Store, value string) error {
		b := s.BeginBatchWrite()
		b.Put([]byte("key"), []byte(value))
		return b.Commit(ctx)
	}
	for _, server := range []*enginetest.Server{first, second} {
		ordinaryUser(t, server.URL())
		require.NoError(t, put(openURL(t, server.URL(), sqlstore.Options{}), "old"))
	}
	enginetest.Exec(t, second.URL(), "SET GLOBAL read_only = 1")
	both := "mysql://app:secret@" + parse(t, first.URL()).Address + "," + parse(t, second.URL()).Address + "/sqlbrain"
	var stores [2]sqlstore.Store
	for i := range stores {
		s, err := open(ctx, parse(t, both), sqlstore.Options{})
		require.NoError(t, err)
		defer func() { require.NoError(t, s.Close()) }()
		stores[i] = s
		_, err = s.Get(ctx, []byte("key"))
		require.NoError(t, err)
	}
	leader, follower := stores[0], stores[1]
	for try := range 5 { // the old primary is trusted for a moment
		now, old := first, second
		if try%2 == 0 {
			now, old = second, first
		}
		_, err := follower.Get(ctx, []byte("key"))
		require.NoError(t, err)
		enginetest.Exec(t, old.URL(), "SET GLOBAL read_only = 1")
		enginetest.Exec(t, now.URL(), "SET GLOBAL read_only = 0")
		value := fmt.Sprint("new", try)
		for put(leader, value) != nil {
			require.NoError(t, ctx.Err())
		}
		got, err := follower.Get(ctx, []byte("key"))
		require.NoError(t, err)
		require.Equal(t, value, string(got))
	}
}
