package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// statementsOf returns how many statements the server executes while do runs, at the fewest of several times: the store
// keeps a spare connection meanwhile. Each is a round trip. Nobody else uses the server.
func statementsOf(t *testing.T, url string, do func()) int {
	t.Helper()
	u, err := sqlstore.ParseURL(url)
	require.NoError(t, err)
	connectors, _, err := connectors(u)
	require.NoError(t, err)
	observer := sql.OpenDB(connectors[0])
	defer observer.Close() //nolint:errcheck // it has read what it was for
	observer.SetMaxOpenConns(1)
	count := func() (n int) {
		var name string
		require.NoError(t, observer.QueryRowContext(t.Context(), "SHOW GLOBAL STATUS LIKE 'Questions'").Scan(&name, &n))
		return n
	}
	fewest := math.MaxInt
	for range 5 {
		before := count()
		do()
		fewest = min(fewest, count()-before-1)
	}
	return fewest
}

func TestStatementsOfFrequentWork(t *testing.T) {
	t.Parallel()
	server := enginetest.StartServer(t)
	s, ctx := openURL(t, server.URL(), sqlstore.Options{}), t.Context()
	key, other := []byte("a row whose whole value is compared"), []byte("another")
	commit := func(fill func(sqlstore.BatchWrite)) error {
		b := s.BeginBatchWrite()
		fill(b)
		return b.Commit(ctx)
	}
	put := func() { require.NoError(t, commit(func(b sqlstore.BatchWrite) { b.Put(key, []byte("1")) })) }
	put()
	swapped := false
	// A connection that was idle asks its server whether it is the primary.
	const check = 1
	require.LessOrEqual(t, statementsOf(t, server.URL(), func() {
		from, to := []byte("1"), []byte("2")
		if swapped {
			from, to = to, from
		}
		swapped = !swapped
		require.NoError(t, commit(func(b sqlstore.BatchWrite) { b.CAS(key, to, from) }))
	}), 1+check, "a heartbeat")
	put()
	require.NoError(t, commit(func(b sqlstore.BatchWrite) { b.CAS(key, []byte("2"), []byte("1")) }))
	require.True(t, sqlstore.IsConflict(commit(func(b sqlstore.BatchWrite) { b.CAS(key, []byte("3"), []byte("1")) })))
	require.True(t, sqlstore.IsConflict(commit(func(b sqlstore.BatchWrite) { b.CAS(other, []byte("3"), []byte("1")) })))
	value, err := s.Get(ctx, key)
	require.NoError(t, err)
	require.Equal(t, "2", string(value))

	n := 0
	require.NoError(t, commit(func(b sqlstore.BatchWrite) { b.Put(other, []byte("0")); b.Put(key, []byte("0")) }))
	require.LessOrEqual(t, statementsOf(t, server.URL(), func() {
		before, after := strconv.Itoa(n), strconv.Itoa(n+1)
		n++
		require.NoError(t, commit(func(b sqlstore.BatchWrite) {
			b.CAS(key, []byte(after), []byte(before))
			b.CAS(other, []byte(after), []byte(before))
		}))
	}), 1+check, "a lock that is taken from its holder")

	// The old connection takes leave, the driver asks for the largest packet, and two statements set the session up.
	const leave = 1
	require.LessOrEqual(t, statementsOf(t, server.URL(), func() {
		s.Database().DropIdle()
		_, err := s.Get(ctx, key)
		require.NoError(t, err)
	}), leave+3+check+1, "a read on a new connection")
}

// TestListOfKeysReadsNoMoreRowsThanItsPageHolds: the server sends what a statement asks for.
func TestListOfKeysReadsNoMoreRowsThanItsPageHolds(t *testing.T) {
	t.Parallel()
	const rows, pageBytes = 5000, 16 << 10
	server := enginetest.StartServer(t)
	s := openURL(t, server.URL(), sqlstore.Options{})
	key := func(n int) []byte { return fmt.Appendf(nil, "%0100d", n) }
	b := s.BeginBatchWrite()
	for n := range rows {
		b.Put(key(n), []byte("index"))
	}
	require.NoError(t, b.Commit(t.Context()))
	read := func() (n int) {
		var name string
		require.NoError(t, s.Database().SQL().QueryRowContext(t.Context(),
			"SHOW GLOBAL STATUS LIKE 'Handler_read_next'").Scan(&name, &n))
		return n
	}
	before, found := read(), 0
	for n := 0; n < rows; {
		page, _, err := s.List(t.Context(), sqlstore.ListQuery{Start: key(n), End: key(rows), MaxBytes: pageBytes,
			KeysOnly: true})
		require.NoError(t, err)
		n, found = n+len(page), found+len(page)
	}
	require.Equal(t, rows, found)
	require.Less(t, read()-before, 3*rows)
}

// TestSessionIsSetUpOneByOneIfNeeded: a server that refuses one of the settings gets the others.
func TestSessionIsSetUpOneByOneIfNeeded(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		u, err := sqlstore.ParseURL(p.Database(t))
		require.NoError(t, err)
		base, _, err := connectors(u)
		require.NoError(t, err)
		statements, together, joined := sessionStatements(true)
		settings := func(s *sqldb.Session) (all [4]string) {
			db := sql.OpenDB(s)
			defer db.Close() //nolint:errcheck // it has read what it was for
			require.NoError(t, db.QueryRowContext(context.Background(),
				"SELECT @@SESSION.sql_mode, @@SESSION.character_set_client, @@SESSION.wait_timeout, "+
					"@@SESSION.innodb_lock_wait_timeout").
				Scan(&all[0], &all[1], &all[2], &all[3]))
			return all
		}
		session := func(together string) *sqldb.Session {
			return &sqldb.Session{Base: base[0], Statements: statements, Together: together, Joined: joined,
				MayRefuse: mayRefuse}
		}
		want := settings(session(""))
		require.Equal(t, "binary", want[1])
		require.Equal(t, want, settings(session(together)))
		require.Equal(t, want, settings(session(together+", no_such_setting = 1")))
	})
}
