package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/interfere"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/nodes"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(programsOf{m}) }

// built is where the tests' programs are built, once for all.
var built string

// programsOf runs tests and removes the programs after them.
type programsOf struct{ m *testing.M }

func (p programsOf) Run() int {
	var err error
	if built, err = os.MkdirTemp("", "sqlbrain-bench-programs-"); err != nil {
		panic(err)
	}
	// A file that another program keeps in the checkout for a moment would make the next build another version.
	if err := os.Setenv("GOFLAGS", os.Getenv("GOFLAGS")+" -buildvcs=false"); err != nil {
		panic(err)
	}
	code := p.m.Run()
	if err := os.RemoveAll(built); err != nil {
		panic(err)
	}
	return code
}

// long runs the tests on all systems this machine can run, etcd and kine too, which
// take minutes to build.
func long() bool { return os.Getenv("SQLBRAIN_LONG") == "1" }

// testPlace is where a test's systems are: sqlbrain on SQLite, and on one database
// server if there is one; all systems if long.
func testPlace(t *testing.T) *place {
	t.Helper()
	p := &place{out: t.TempDir(), programs: built, module: ".", systems: []string{"sqlbrain-sqlite"}, redoLog: 64 << 20}
	// Not below a test's own directory, which is closed to the databases' user.
	var err error
	p.data, err = os.MkdirTemp("", "sqlbrain-bench-test-")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(p.data)) })
	require.NoError(t, os.Chmod(p.data, 0o755))
	var programs system.Programs
	require.NoError(t, programs.FindDatabases())
	for _, engine := range []struct{ name, path string }{{"tidb", programs.TiDB}, {"mariadb", programs.MariaDB},
		{"mysql", programs.MySQL}} {
		if engine.path != "" && (long() || len(p.systems) == 1) {
			p.systems = append(p.systems, "sqlbrain-"+engine.name)
			if long() {
				p.systems = append(p.systems, "kine-"+engine.name)
			}
		}
	}
	if long() {
		p.systems = append(p.systems, "etcd", "kine-sqlite", "kine-sqlite-loose")
	}
	return p
}

// tiny is a comparison with a plan for tests.
func tiny(c comparison, only ...string) comparison {
	c.options, c.only = plan.Tiny, only
	return c
}

func TestMeasuresEverythingAndResumes(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
	defer cancel()
	p := testPlace(t)
	path := filepath.Join(p.out, results.name+".json")
	// First a part, as a run that is interrupted leaves it.
	require.NoError(t, tiny(results, "get", "delete").run(ctx, p, 1, false))
	part, err := result.Read(path)
	require.NoError(t, err)
	require.Less(t, len(part.Figures), len(p.systems)*len(plan.Tiny.Cells()))
	kept := part.Figures[0].Started
	require.NoError(t, tiny(results).run(ctx, p, 1, true))
	f, err := result.Read(path)
	require.NoError(t, err)
	require.Equal(t, kept, f.Figures[0].Started, "measured again")
	require.Len(t, f.Figures, len(p.systems)*len(plan.Tiny.Cells()))
	for _, g := range f.Figures {
		if g.System[:4] == "kine" {
			require.NotEqual(t, result.Failed, g.Status, "%s %s: %s", g.System, g.ID, g.Reason)
			continue
		}
		require.Equal(t, result.OK, g.Status, "%s %s: %s", g.System, g.ID, g.Reason)
		require.Positive(t, g.PerSecond, "%s %s", g.System, g.ID)
		require.Positive(t, g.P50, "%s %s", g.System, g.ID)
		require.Positive(t, g.ServerRSS, "%s %s", g.System, g.ID)
		require.Positive(t, g.Answers, "%s %s", g.System, g.ID)
	}
	page, err := os.ReadFile(filepath.Join(p.out, results.name+".md"))
	require.NoError(t, err)
	for _, c := range plan.Tiny.Cells() {
		require.Contains(t, string(page), "| "+c.ID+" |")
	}
	left, err := os.ReadDir(p.data)
	require.NoError(t, err)
	require.Empty(t, left, "leftover data")
}

func TestFailedStartKeepsFiguresOfOtherSystems(t *testing.T) {
	p := testPlace(t)
	p.systems, p.programs = []string{"etcd", "sqlbrain-sqlite"}, t.TempDir()
	var programs system.Programs
	require.NoError(t, programs.Build(t.Context(), p.module, p.programs, system.Sqlbrain))
	broken, err := exec.LookPath("false")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(broken, filepath.Join(p.programs, "etcd")))
	p.module = "" // as they are
	require.NoError(t, tiny(results, "get").run(t.Context(), p, 1, false))
	f, err := result.Read(filepath.Join(p.out, results.name+".json"))
	require.NoError(t, err)
	require.NotEmpty(t, f.Of("etcd", "get-8"))
	require.Equal(t, result.Failed, f.Of("etcd", "get-8")[0].Status)
	require.Contains(t, f.Of("etcd", "get-8")[0].Reason, "did not start")
	require.NotEmpty(t, f.Of("sqlbrain-sqlite", "get-8"))
	require.Equal(t, result.OK, f.Of("sqlbrain-sqlite", "get-8")[0].Status)
	require.Contains(t, report.Page(f), "etcd, get-8: failed")
}

func TestScoreboard(t *testing.T) {
	p := testPlace(t)
	options := plan.Options{Churn: []int{4, 8}, Watchers: []int{3}, Keys: 40, ValueSize: 64,
		Duration: 100 * time.Millisecond}
	c := scoreboard
	c.options = options
	require.NoError(t, c.run(t.Context(), p, 1, false))
	f, err := result.Read(filepath.Join(p.out, scoreboard.name+".json"))
	require.NoError(t, err)
	require.Len(t, f.Figures, len(p.systems)*len(options.Churn))
	for _, g := range f.Figures {
		if g.System[:4] == "kine" { // it loses events
			require.Positive(t, g.Succeeded, "%+v", g)
			continue
		}
		require.Equal(t, result.OK, g.Status, "%s %s: %s", g.System, g.ID, g.Reason)
		require.Positive(t, g.Succeeded)
		require.GreaterOrEqual(t, g.Events, 3*g.Succeeded/2, "some writes must be refused, so they have no events")
		require.Zero(t, g.Missing)
		require.Positive(t, g.LagP50)
	}
	page, err := os.ReadFile(filepath.Join(p.out, scoreboard.name+".md"))
	require.NoError(t, err)
	require.Regexp(t, `(?m)^\| churn-8 \|( 100\.00 % \|)+`, string(page))
}

func TestDocumentsQuoteTheResults(t *testing.T) {
	for path, systems := range quoting {
		want, err := quote(path, systems)
		require.NoError(t, err)
		got, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, want, string(got), "%s: write the figures with make bench WHAT=report", path)
	}
}

// TestFailedInterferenceIsOneRow: the error has a line for each request that failed.
func TestFailedInterferenceIsOneRow(t *testing.T) {
	systems, err := system.Parse([]string{"etcd"})
	require.NoError(t, err)
	failed := interfere.Figure{Failed: errors.Join(errors.New("timed out"), errors.New("timed out"))}
	rows := interferenceRows(systems, []string{"join"},
		map[string]map[string][]interfere.Figure{"join": {"etcd": {failed}}})
	require.Equal(t, "| join | etcd | failed: timed out |\n", rows)
}

func TestInterference(t *testing.T) {
	p := testPlace(t)
	require.NoError(t, runInterference(t.Context(), p, 1, interfere.Tiny))
	page, err := os.ReadFile(filepath.Join(p.out, "interference.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| compaction of all versions | sqlbrain-sqlite |")
	for _, s := range p.systems[1:] {
		if strings.HasPrefix(s, "kine") { // it has one member
			continue
		}
		require.Contains(t, string(page), "| follower that joins, and leaves | "+s+" |")
	}
	require.NotContains(t, string(page), "failed")
}

func TestNodes(t *testing.T) {
	p := testPlace(t)
	require.NoError(t, runNodes(t.Context(), p, 1, nodes.Tiny))
	page, err := os.ReadFile(filepath.Join(p.out, "nodes.md"))
	require.NoError(t, err)
	require.Contains(t, string(page), "| until a namespace's watcher has it, p99 ms |")
	require.NotContains(t, string(page), "NaN")
}
