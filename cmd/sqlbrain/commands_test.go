package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/doctor"
	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestVersion(t *testing.T) {
	a := succeed(t, "version", "--output=json")
	var v map[string]string
	require.NoError(t, json.Unmarshal([]byte(a.stdout), &v))
	require.Equal(t, server.EtcdVersion, v["etcd"])
	require.NotEmpty(t, v["sqlbrain"])
	require.Contains(t, v["go"], "go1.")
	require.Contains(t, execute(t, "version").stdout, server.EtcdVersion)
	require.Equal(t, "sqlbrain "+v["sqlbrain"]+"\n", execute(t, "--version").stdout)
}

func TestHelpShowsNoSettingsOfTheEnvironment(t *testing.T) {
	environ := []string{"SQLBRAIN_DATASTORE=mysql://root:Geheim0815@db/k8s"}
	for _, command := range []string{"", "serve", "migrate", "migrate up", "doctor", "recover", "restore", "health",
		"version"} {
		a := executeEnv(t, environ, append(strings.Fields(command), "--help")...)
		require.Zero(t, a.code, command)
		require.Contains(t, a.stdout, "Usage:", command)
		require.Empty(t, a.stderr, command)
	}
}

// TestDatabaseCommandsShareVariablesOfAServer, some of which make sense only with others that the server has.
func TestDatabaseCommandsShareVariablesOfAServer(t *testing.T) {
	for _, variable := range []string{"SQLBRAIN_CLIENT_CRL_FILE=c", "SQLBRAIN_LISTEN_PEER_URLS=https://0.0.0.0:2380"} {
		environ := []string{variable}
		a := executeEnv(t, environ, "migrate", "up", "--datastore", sqliteURL(t))
		require.Zero(t, a.code, a.stderr)
		for _, command := range []string{"serve", "kine", "health", "ctl get k"} {
			executeEnv(t, environ, strings.Fields(command)...).requireRefused(t, "needed as well")
		}
	}
}

func TestMigrate(t *testing.T) {
	onEngines(t, "ALL PRIVILEGES", func(t *testing.T, datastore string) {
		db := []string{"--datastore", datastore}
		migrate := func(args ...string) answer {
			t.Helper()
			return execute(t, append(append([]string{"migrate"}, args...), db...)...)
		}
		if strings.HasPrefix(datastore, "sqlite:") {
			migrate("version").requireRefused(t, "no such file")
		} else {
			require.Equal(t, "schema version 0 (this binary needs 1)\n", migrate("version").stdout)
		}
		a := migrate("up")
		require.Zero(t, a.code, a.stderr)
		require.Equal(t, "schema version 1 (this binary needs 1)\n", a.stdout)
		require.Zero(t, migrate("up").code)
		require.JSONEq(t, `{"version":1,"dirty":false,"needed":1}`, migrate("version", "-o", "json").stdout)

		migrate("down").requireRefused(t, "repeat with --yes")
		require.Contains(t, migrate("version").stdout, "schema version 1")
		require.Zero(t, migrate("down", "--yes").code)
		require.Contains(t, migrate("version").stdout, "schema version 0")
		migrate("down", "--yes").requireRefused(t, "has no sqlbrain schema")

		require.Zero(t, migrate("up").code)
		migrate("force", "999").requireRefused(t, "newer than this binary")
		require.Zero(t, migrate("force", "1").code)
	})
}

// TestSQLiteFileOfARunningServerIsNotChanged: it can be looked at, and not be changed.
func TestSQLiteFileOfARunningServerIsNotChanged(t *testing.T) {
	raw := sqliteURL(t)
	n := startNode(t, "--datastore", raw)
	inUse := []string{"in use by another sqlbrain", strings.TrimPrefix(raw, "sqlite://"),
		"process " + strconv.Itoa(os.Getpid())}
	for _, command := range []string{"serve --listen-client-urls=http://127.0.0.1:0 --listen-peer-urls=", "migrate up",
		"migrate down --yes", "migrate force 1"} {
		execute(t, append(strings.Fields(command), "--datastore", raw)...).requireRefused(t, inUse...)
	}
	require.Equal(t, "schema version 1 (this binary needs 1)\n",
		execute(t, "migrate", "version", "--datastore", raw).stdout)
	a, found := examined(t, "--datastore", raw)
	require.Zero(t, a.code, a.stdout)
	require.Equal(t, doctor.OK, found["rows"].Status)

	n.put(t, "k", "v")
	require.Zero(t, n.stop())
	succeed(t, "migrate", "up", "--datastore", raw)
}

// examined runs doctor and returns its findings by check.
func examined(t *testing.T, args ...string) (answer, map[string]doctor.Finding) {
	t.Helper()
	table := execute(t, append([]string{"doctor"}, args...)...)
	a := execute(t, append([]string{"doctor", "--output=json"}, args...)...)
	require.Equal(t, table.code, a.code)
	require.Empty(t, a.stderr)
	var report doctor.Report
	require.NoError(t, json.Unmarshal([]byte(a.stdout), &report))
	found := map[string]doctor.Finding{}
	for _, f := range report.Findings {
		found[f.Check] = f
		require.Contains(t, table.stdout, f.Check)
		require.Equal(t, f.Status == doctor.OK, f.Advice == "", "%+v", f)
	}
	return a, found
}

// TestCommandsThatLookLeaveAnSQLiteFileAsItIs: the path may be that of another program's file.
func TestCommandsThatLookLeaveAnSQLiteFileAsItIs(t *testing.T) {
	raw := sqliteURL(t)
	path := strings.TrimPrefix(raw, "sqlite://")
	sqliteExec(t, raw, "PRAGMA auto_vacuum = FULL", "CREATE TABLE others (a)")
	before, err := os.ReadFile(path)
	require.NoError(t, err)
	a, found := examined(t, "--datastore", raw)
	require.Zero(t, a.code, a.stderr)
	require.Contains(t, found["journal"].Detail, "journal_mode is delete")
	require.Equal(t, doctor.Warn, found["schema"].Status)
	succeed(t, "migrate", "version", "--datastore", raw)
	after, err := os.ReadFile(path)
	require.NoError(t, err)
	require.True(t, bytes.Equal(before, after))
}

func TestDoctorOnSQLite(t *testing.T) {
	raw := sqliteURL(t)
	a, found := examined(t, "--datastore", raw)
	require.Zero(t, a.code)
	require.Equal(t, doctor.Warn, found["reachable"].Status)
	require.NoFileExists(t, strings.TrimPrefix(raw, "sqlite://"))

	succeed(t, "migrate", "up", "--datastore", raw)
	a, found = examined(t, "--datastore", raw)
	require.Zero(t, a.code)
	for _, check := range []string{"reachable", "version", "journal", "durability", "size", "schema", "privileges",
		"loss", "rows"} {
		require.Equal(t, doctor.OK, found[check].Status, "%s: %+v", check, found[check])
	}

	insert := func(key, value []byte) {
		sqliteExec(t, raw, fmt.Sprintf("INSERT INTO object VALUES (x'%x', x'%x')", key, value))
	}
	insert(coder.DataLossKey(), coder.EncodeDataLoss(coder.DataLoss{Sequence: 7, Term: 1, Revision: 5, Member: 9}))
	a, found = examined(t, "--datastore", raw)
	require.Equal(t, 1, a.code)
	require.Equal(t, doctor.Fail, found["loss"].Status)
	require.Contains(t, found["loss"].Detail, "member 9 found that")
	serve(t, "--datastore", raw).requireRefused(t, "revision 5 was acknowledged", "see sqlbrain recover")
	insert(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 8, Term: 2, Revision: 6}))
	a, found = examined(t, "--datastore", raw)
	require.Zero(t, a.code)
	require.Equal(t, doctor.Warn, found["loss"].Status)
	sqliteExec(t, raw, fmt.Sprintf("UPDATE object SET object_value = x'3f' WHERE internal_key = x'%x'",
		coder.DataLossKey()))
	_, found = examined(t, "--datastore", raw)
	require.Equal(t, doctor.Fail, found["loss"].Status)
	require.Contains(t, found["loss"].Detail, "says the data loss marker")

	sqliteExec(t, raw, "UPDATE schema_migrations SET dirty = TRUE")
	a, found = examined(t, "--datastore", raw)
	require.Equal(t, 1, a.code)
	require.Equal(t, doctor.Fail, found["schema"].Status)
}

func TestDoctorOnMySQL(t *testing.T) {
	raw := mysqlUser(t, "ALL PRIVILEGES")
	a, found := examined(t, "--datastore", raw)
	require.Zero(t, a.code, a.stdout)
	require.Equal(t, doctor.Warn, found["schema"].Status)
	require.Equal(t, doctor.OK, found["create"].Status)
	require.NotContains(t, found, "privileges", "there is no table to try them on")

	succeed(t, "migrate", "up", "--datastore", raw)
	a, found = examined(t, "--datastore", raw)
	require.Zero(t, a.code, a.stdout)
	for _, check := range []string{"reachable", "version", "schema", "privileges", "create", "writable", "sql_mode",
		"loss", "packet", "isolation", "clock", "size", "connections"} {
		require.Equal(t, doctor.OK, found[check].Status, "%s: %+v", check, found[check])
	}
	for _, check := range []string{"tls", "durability"} {
		require.Contains(t, found, check)
	}
	require.Contains(t, found["size"].Detail, "keys and values: not counted yet;")

	token := coder.FenceToken{Sequence: 1, Bytes: 3<<20 + 20<<10}
	enginetest.Exec(t, raw, fmt.Sprintf("INSERT INTO object VALUES (x'%x', x'%x'), (x'%x', x'%x')",
		coder.FenceKey(), coder.EncodeFenceToken(token), coder.RemovedKey(), coder.EncodeInt64(3<<20)))
	_, found = examined(t, "--datastore", raw)
	require.Contains(t, found["size"].Detail, "keys and values: 20 KiB;")

	a, found = examined(t, "--datastore", raw, "--max-request-bytes=2000000000")
	require.Equal(t, 1, a.code)
	require.Equal(t, doctor.Fail, found["packet"].Status)
	_, found = examined(t, "--datastore", raw, "--datastore-max-open-conns=60000")
	if enginetest.Any().Can(enginetest.ConnectionLimit) {
		require.Equal(t, doctor.Warn, found["connections"].Status)
	}
}

// TestServeGivesTheAdviceOfDoctor on faults of the database, among them a port where something
// else listens. It never answers; doctor does not wait for that for long.
func TestServeGivesTheAdviceOfDoctor(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer silent.Close()
	other := httptest.NewServer(http.NotFoundHandler())
	defer other.Close()
	for name, address := range map[string]string{"silent": silent.Addr().String(),
		"HTTP": strings.TrimPrefix(other.URL, "http://"), "nothing": "127.0.0.1:1"} {
		raw := "mysql://user:some-word@" + address + "/sqlbrain?timeout=1s"
		a, found := examined(t, "--datastore", raw)
		require.Equal(t, 1, a.code, name)
		require.Contains(t, found["reachable"].Advice, "check host, port and network", name)
		served := serve(t, "--datastore", raw)
		require.Equal(t, 1, served.code, name)
		require.Contains(t, served.stderr, found["reachable"].Advice, name)
	}
	_, found := examined(t, "--datastore", "mysql://user:some-word@"+silent.Addr().String()+"/sqlbrain")
	require.Contains(t, found["reachable"].Detail, "no answer within 5s")
}
