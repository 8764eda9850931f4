package mysql

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// TestSessionsDoNotInheritSettings that an operator may have made for other applications. The servers are the test's
// own, because the settings are global.
func TestSessionsDoNotInheritSettings(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		server := p.StartServer(t)
		migrate(t, server.URL())
		user := ordinaryUser(t, server.URL()) // init_connect is not executed for others
		for _, c := range []struct {
			setting, value string
			check          func(*testing.T, *sqldb.Store)
		}{
			{"init_connect", "'SET NAMES gbk'", readsAKeyWithAQuote},
			{"completion_type", "CHAIN", commitsAfterATransaction},
			{"sql_select_limit", "1", readsManyRows},
			{"sql_buffer_result", "1", readsInOrder},
		} {
			enginetest.Exec(t, server.URL(), "SET GLOBAL "+c.setting+" = "+c.value)
			s := openURL(t, user, sqlstore.Options{})
			requireSettings(t, s)
			c.check(t, s)
			enginetest.Exec(t, server.URL(), "SET GLOBAL "+c.setting+" = DEFAULT")
		}
		if !p.Can(enginetest.Replicas) {
			return // it refuses this setting
		}
		enginetest.Exec(t, server.URL(), "SET GLOBAL TRANSACTION READ ONLY")
		_, err := open(t.Context(), parse(t, user), sqlstore.Options{})
		require.ErrorIs(t, err, sqlstore.ErrUnfit) // it may be meant
		require.ErrorContains(t, err, "read-only")
	})
}

// requireSettings fails the test unless Check sees all that sessions set.
func requireSettings(t *testing.T, s *sqldb.Store) {
	t.Helper()
	conn, err := s.Database().Read().Connx(t.Context())
	require.NoError(t, err)
	defer conn.Close() //nolint:errcheck // it has read what it was for
	vars, err := variables(t.Context(), conn)
	require.NoError(t, err)
	for _, setting := range sessionSettings {
		require.Equal(t, setting[1], vars[setting[0]], setting[0])
	}
}

// readsAKeyWithAQuote that is the second byte of a character of gbk. A statement is not prepared when it first appears.
func readsAKeyWithAQuote(t *testing.T, s *sqldb.Store) {
	t.Helper()
	_, err := s.Get(t.Context(), []byte("\x81' UNION SELECT 1 -- "))
	require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)
}

// commitsAfterATransaction whose COMMIT may begin another one, in which the statement would stay.
func commitsAfterATransaction(t *testing.T, s *sqldb.Store) {
	t.Helper()
	b := s.BeginBatchWrite()
	b.Put([]byte("a transaction"), []byte("x"))
	require.NoError(t, b.Commit(t.Context()))
	b = s.BeginBatchWrite()
	b.PutIfNotExist([]byte("one statement"), []byte("x"))
	require.NoError(t, b.Commit(t.Context()))
	_, err := s.Get(t.Context(), []byte("one statement")) // on another connection
	require.NoError(t, err)
}

func readsManyRows(t *testing.T, s *sqldb.Store) {
	t.Helper()
	keys := [][]byte{[]byte("1"), []byte("2"), []byte("3")}
	b := s.BeginBatchWrite()
	for _, key := range keys {
		b.Put(key, key)
	}
	require.NoError(t, b.Commit(t.Context()))
	values, err := s.MultiGet(t.Context(), keys)
	require.NoError(t, err)
	require.Equal(t, keys, values)
}

// readsInOrder rows that do not fill the pages of a temporary table evenly.
func readsInOrder(t *testing.T, s *sqldb.Store) {
	t.Helper()
	b := s.BeginBatchWrite()
	for n := range 100 {
		b.Put(fmt.Appendf(nil, "row %02d", n), make([]byte, n*7919%20_000))
	}
	require.NoError(t, b.Commit(t.Context()))
	n := 0
	for row, err := range s.Iter(t.Context(), sqlstore.Range{Start: []byte("row"), End: []byte("rox")}) {
		require.NoError(t, err)
		require.Equal(t, fmt.Sprintf("row %02d", n), string(row.Key))
		n++
	}
	require.Equal(t, 100, n)
}

// TestSessionThatWasResetIsRefused: a proxy may use a connection for several sessions.
func TestSessionThatWasResetIsRefused(t *testing.T) {
	t.Parallel()
	raw := enginetest.Database(t)
	migrate(t, raw)
	for name, value := range map[string]string{
		"character_set_client": "gbk", "character_set_connection": "gbk", "completion_type": "CHAIN",
		"sql_select_limit": "10", "sql_buffer_result": "ON",
	} {
		disguise := &enginetest.TiDB{Variables: map[string]string{name: value}}
		_, err := open(t.Context(), parse(t, raw), sqlstore.Options{WrapConnector: disguise.Wrap})
		require.ErrorIs(t, err, sqlstore.ErrUnfit)
		require.ErrorContains(t, err, name)
	}
}
