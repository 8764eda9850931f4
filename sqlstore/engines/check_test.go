package engines_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// checked opens the database without the migrations, runs statements on it, and
// returns what Check says.
func checked(t *testing.T, raw string, statements ...string) (sqldb.Info, error) {
	t.Helper()
	db, err := engines.OpenDB(parse(t, raw), sqlstore.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, db.Close()) }()
	for _, s := range statements {
		if _, err := db.SQL().Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return db.Check(context.Background())
}

func TestCheckWantsTheTable(t *testing.T) {
	t.Parallel()
	tablesOf := map[string]map[string]string{ // statement to what the error mentions
		"sqlite": {
			"SELECT 1": "migrate",
			"CREATE TABLE object (internal_key TEXT NOT NULL PRIMARY KEY, object_value BLOB NOT NULL)":                 "BLOB",
			"CREATE TABLE object (internal_key BLOB NOT NULL PRIMARY KEY, object_value BLOB NOT NULL) WITHOUT ROWID":   "WITHOUT ROWID",
			"CREATE TABLE object (internal_key BLOB NOT NULL PRIMARY KEY, object_value BLOB)":                          "BLOB",
			"CREATE TABLE object (internal_key BLOB NOT NULL PRIMARY KEY, object_value BLOB NOT NULL, more TEXT)":      "more",
			"CREATE TABLE object (internal_key BLOB NOT NULL, object_value BLOB NOT NULL, PRIMARY KEY (object_value))": "BLOB",
		},
		"server": {
			"SELECT 1": "migrate",
			"CREATE TABLE object (internal_key VARBINARY(3072) PRIMARY KEY, object_value BLOB NOT NULL) CHARSET binary":      "MEDIUMBLOB",
			"CREATE TABLE object (internal_key VARBINARY(767) PRIMARY KEY, object_value MEDIUMBLOB NOT NULL) CHARSET binary": "3072",
			"CREATE TABLE object (internal_key VARCHAR(700) PRIMARY KEY, object_value MEDIUMBLOB NOT NULL) CHARSET utf8mb4":  "VARBINARY",
			"CREATE TABLE object (internal_key VARBINARY(3072) NOT NULL, object_value MEDIUMBLOB NOT NULL) CHARSET binary":   "PRIMARY KEY",
			"CREATE TABLE object (internal_key VARBINARY(3072) PRIMARY KEY, object_value MEDIUMBLOB) CHARSET binary":         "NOT NULL",
		},
	}
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		raw := database(t)
		server := parse(t, raw).Dialect == "mysql"
		tables := tablesOf["sqlite"]
		if server {
			tables = tablesOf["server"]
		}
		for statement, says := range tables {
			_, err := checked(t, database(t), statement)
			if !errors.Is(err, sqlstore.ErrUnfit) || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want ErrUnfit that mentions %s", statement, err, says)
			}
		}
		migrate(t, raw)
		info, err := checked(t, raw)
		if err != nil || info.Version == "" || info.Product == "" || server && info.MaxPacket == 0 {
			t.Errorf("%+v, %v", info, err)
		}
	})
}

// TestCheckRefusesAnotherEngine: MyISAM has no transactions.
func TestCheckRefusesAnotherEngine(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		if !p.Can(enginetest.MyISAM) {
			t.Skip("has one engine")
		}
		_, err := checked(t, p.Database(t),
			"CREATE TABLE object (internal_key VARBINARY(900) PRIMARY KEY, object_value MEDIUMBLOB NOT NULL) CHARSET binary ENGINE = MyISAM")
		require.ErrorIs(t, err, sqlstore.ErrUnfit)
		require.ErrorContains(t, err, "InnoDB")
	})
}

func TestCheckJudgesTheServer(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		s := p.StartServer(t)
		raw := s.URL()
		migrate(t, raw)
		check := func(want, set, reset string) {
			t.Helper()
			enginetest.Exec(t, raw, set)
			_, err := checked(t, raw)
			if want == "" && err != nil {
				t.Errorf("%s: %v", set, err)
			}
			if want != "" && (!errors.Is(err, sqlstore.ErrUnfit) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v, want ErrUnfit that mentions %s", set, err, want)
			}
			enginetest.Exec(t, raw, reset)
		}
		check(p.ReadOnly(), "SET GLOBAL "+p.ReadOnly()+" = 1", "SET GLOBAL "+p.ReadOnly()+" = 0")
		check("max_allowed_packet", "SET GLOBAL max_allowed_packet = 65536", "SET GLOBAL max_allowed_packet = 16777216")
		// Sessions do not depend on what the server's defaults are.
		check("", "SET GLOBAL sql_mode = ''", "SET GLOBAL sql_mode = DEFAULT")
		check("", "SET GLOBAL autocommit = 0", "SET GLOBAL autocommit = 1")
		if p.Can(enginetest.Serializable) {
			check("", "SET GLOBAL TRANSACTION ISOLATION LEVEL SERIALIZABLE",
				"SET GLOBAL TRANSACTION ISOLATION LEVEL REPEATABLE READ")
		}
	})
}

func TestSmallPacketsAreHonoured(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		s := p.StartServer(t)
		enginetest.Exec(t, s.URL(), "SET GLOBAL max_allowed_packet = 1048576")
		store := openURL(t, s.URL(), sqlstore.Options{})
		ctx := context.Background()
		commit := func(fill func(sqlstore.BatchWrite)) error {
			b := store.BeginBatchWrite()
			fill(b)
			return b.Commit(ctx)
		}
		for _, quote := range []byte{'a', '\''} { // twice as long once escaped
			value := make([]byte, 900<<10)
			for i := range value {
				value[i] = quote
			}
			for i := range 6 {
				// Many that together exceed the packet, at the first and later appearances of the statements.
				if err := commit(func(b sqlstore.BatchWrite) {
					for k := range byte(3) {
						b.Put([]byte{'k', k, byte(i)}, value)
					}
				}); err != nil {
					t.Fatal(err)
				}
				if err := commit(func(b sqlstore.BatchWrite) { b.PutIfNotExist([]byte{'p', byte(i), quote}, value) }); err != nil {
					t.Fatal(err)
				}
			}
			got, err := store.Get(ctx, []byte{'p', 0, quote})
			if err != nil || string(got) != string(value) {
				t.Fatalf("%d bytes, %v", len(got), err)
			}
		}
		err := commit(func(b sqlstore.BatchWrite) { b.PutIfNotExist([]byte("large"), make([]byte, 1<<20)) })
		require.ErrorIs(t, err, sqlstore.ErrTooLarge, "a row as large as the packet")
	})
}
