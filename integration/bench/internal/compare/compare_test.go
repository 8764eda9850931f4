package compare

import (
	"io"
	"os"
	"testing"

	"github.com/prometheus/procfs"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/plan"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/system"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// children are this process's running programs of a name.
func children(t *testing.T, name string) []*os.Process {
	t.Helper()
	all, err := procfs.AllProcs()
	require.NoError(t, err)
	var found []*os.Process
	for _, p := range all {
		stat, err := p.Stat() // a process of another program may end in between
		if err != nil || stat.PPID != os.Getpid() || stat.Comm != name {
			continue
		}
		child, err := os.FindProcess(p.PID)
		require.NoError(t, err)
		found = append(found, child)
	}
	return found
}

func TestDeadServerFailsRemainingSteps(t *testing.T) {
	env := &system.Environment{Dir: t.TempDir()}
	require.NoError(t, env.Programs.Build(t.Context(), "../..", t.TempDir(), system.Sqlbrain))
	sqlite := system.System{Product: system.Sqlbrain, Engine: system.SQLite}
	var file result.File
	killed := false
	cfg := Config{
		Environment: env, Systems: []system.System{sqlite}, Options: plan.Tiny, Rounds: 1, Progress: io.Discard,
		Save: func() error {
			if !killed { // after the first figure
				servers := children(t, "sqlbrain")
				require.Len(t, servers, 1)
				require.NoError(t, servers[0].Kill())
				eventually.True(t, "the server's end", func() bool { return len(children(t, "sqlbrain")) == 0 })
				killed = true
			}
			return nil
		},
	}
	require.NoError(t, Run(t.Context(), cfg, &file))
	require.Len(t, file.Figures, len(plan.Tiny.Cells()))
	require.Equal(t, result.OK, file.Figures[0].Status, file.Figures[0].Reason)
	require.Equal(t, result.Failed, file.Figures[1].Status)
	// The first of them may begin while the server's end is being noticed. The others do not begin.
	for _, f := range file.Figures[2:] {
		require.Equal(t, result.Failed, f.Status)
		require.Contains(t, f.Reason, "sqlbrain ended by itself")
	}
	left, err := os.ReadDir(env.Dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
