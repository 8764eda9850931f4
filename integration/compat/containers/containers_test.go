package containers

import (
	"context"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it would log each attempt while a server starts
	harness.TestMain(m)
}

// TestImages starts each image once and runs everything on it.
func TestImages(t *testing.T) {
	for _, i := range images {
		t.Run(i.name, func(t *testing.T) {
			i.start(t)
			p := i.product()
			t.Run("storage suite", func(t *testing.T) {
				storetest.Run(t, func(t testing.TB) sqlstore.Store {
					return sqldbtest.Opener(engines.OpenDB).Store(t, p.Database(t), sqlstore.Options{})
				})
			})
			t.Run("tour", func(t *testing.T) { tour(t, p.Database(t)) })
			t.Run("history", func(t *testing.T) { history(t, p) })
		})
	}
}

// history runs a history and a concurrent one of integration/compat, which compare
// sqlbrain's answers with etcd's, on the server that the environment names.
func history(t *testing.T, p enginetest.Product) {
	ctx, cancel := context.WithTimeout(t.Context(), compatWait)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "test", "-count=1", "-v", "-run",
		"^(TestHistories|TestConcurrentHistories)$/^"+string(p)+"$", "./compat",
		"-histories", "1", "-concurrent", "1", "-length", "200")
	cmd.Dir = filepath.Join("..", "..")
	cmd.Env = append(cmd.Environ(), enginetest.EnvRequire+"=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	for _, name := range []string{"TestHistories", "TestConcurrentHistories"} {
		require.Contains(t, string(out), "--- PASS: "+name+"/"+string(p)+"/seed=1", "it must not have been skipped")
	}
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, "histories") {
			t.Log(strings.TrimSpace(line))
		}
	}
}
