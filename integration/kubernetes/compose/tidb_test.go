package compose

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestTiDBProfile runs `make up`, then what that says to try, then `make down`. The server is a real TiDB over the
// store that is part of its program. PD and TiKV are idle: what docker-compose.yml tells them is not run.
func TestTiDBProfile(t *testing.T) {
	server := os.Getenv(enginetest.EnvTiDBServer)
	if server == "" { // not even SQLBRAIN_REQUIRE_ENGINES=1 demands it: CI has none
		t.Skipf("%s names no program of a TiDB to make an image of", enginetest.EnvTiDBServer)
	}
	e := newEngine(t)
	p := newProject(t, e)
	p.profile = "" // make names it
	p.env["TIDB_PORT"] = freePort(t)
	p.env["TIDB_IMAGE"] = e.tidbImage(server)
	p.env["PD_IMAGE"] = e.idleImage()
	p.env["TIKV_IMAGE"] = p.env["PD_IMAGE"]
	services := databases["tidb"].nodes

	p.path = programs(t)
	out := p.shell(25*time.Minute, "make --no-print-directory DB=tidb up")
	requireSchemaFirst(t, p, "tidb-migrate", services)
	var version int
	var dirty bool
	p.queryTiDB(schemaQuery, &version, &dirty)
	require.Equal(t, 1, version)
	require.False(t, dirty)
	doctor := p.run(time.Minute, "run", "--rm", "--no-deps", "-T", "n1", "doctor")
	require.Contains(t, doctor, "tidb_gc_life_time")
	require.NotContains(t, doctor, "FAIL")
	nodes := connect(t, p, services)
	leaderOf(t, nodes)

	_, try, found := strings.Cut(out, "Ready. Try:\n")
	require.True(t, found, out)
	var commands []string
	for line := range strings.Lines(try) {
		if command, indented := strings.CutPrefix(line, "  "); indented {
			commands = append(commands, strings.Replace(command, "logs --follow", "logs --no-color", 1)) // one that ends
		}
	}
	require.Len(t, commands, 4, out)
	require.Contains(t, commands[3], "docker compose kill n1")
	commands = append(commands, "etcdctl --command-timeout=60s put greeting again; etcdctl get greeting")
	tried := p.shell(5*time.Minute, append([]string{"set -e"}, commands...)...)
	require.Contains(t, tried, "OK\ngreeting\nhello\n")
	for _, port := range []string{"N1_PORT", "N2_PORT", "N3_PORT"} {
		require.Contains(t, tried, "http://127.0.0.1:"+p.env[port])
	}
	require.Contains(t, tried, "n1-1  | ", "its log")
	require.True(t, strings.HasSuffix(tried, "OK\ngreeting\nagain\n"), tried)
	require.NotContains(t, p.run(time.Minute, "--profile=tidb", "logs", "--no-color"), "that is not a setting")

	p.shell(5*time.Minute, "make --no-print-directory down")
	require.Empty(t, e.remains(p.name))
}

// queryTiDB asks the TiDB of the project, as docker-compose.yml's user, from this machine.
func (p *project) queryTiDB(query string, to ...any) {
	p.t.Helper()
	db, err := sql.Open("mysql", "sqlbrain:development@tcp(127.0.0.1:"+p.env["TIDB_PORT"]+")/sqlbrain")
	require.NoError(p.t, err)
	defer func() { require.NoError(p.t, db.Close()) }()
	require.NoError(p.t, db.QueryRowContext(p.t.Context(), query).Scan(to...))
}

// idleTiKV is docker-compose.yml without the limit that TiKV needs: a machine that does not allow it can run the idle
// one.
const idleTiKV = "services: {tikv: {ulimits: !reset {}}}\n"

// programs returns a folder with etcdctl, and a docker that is Docker Compose as Go built it.
func programs(t *testing.T) string {
	t.Helper()
	compose, err := composeTool()
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.Symlink(harness.Etcdctl(t), filepath.Join(dir, "etcdctl")))
	override := filepath.Join(dir, "idle.yml")
	require.NoError(t, os.WriteFile(override, []byte(idleTiKV), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "docker"), []byte("#!/bin/sh\nshift\nexec "+compose+
		" --file=docker-compose.yml --file="+override+" \"$@\"\n"), 0o700)) //nolint:gosec // a program
	return dir
}

// shell runs lines in the folder of the Makefile, and returns what they print on stdout.
func (p *project) shell(limit time.Duration, lines ...string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), limit)
	defer cancel()
	begin := time.Now()
	out, err := p.command(ctx, "sh", "-c", "cd "+root+"\n"+strings.Join(lines, "\n"))
	require.NoError(p.t, err, out)
	p.t.Logf("%s: %s\n%s", strings.Join(lines, "\n"), time.Since(begin).Round(10*time.Millisecond), out)
	return out
}
