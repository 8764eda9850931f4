package system

import (
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// requireCores fails unless each thread of a process is on that processor only, or may use both.
func requireCores(t *testing.T, process string, first, second bool) {
	t.Helper()
	threads, err := os.ReadDir("/proc/" + process + "/task")
	require.NoError(t, err)
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		require.NoError(t, err)
		var on unix.CPUSet
		if err = unix.SchedGetaffinity(id, &on); errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		require.NoError(t, err)
		require.Equal(t, []bool{first, second}, []bool{on.IsSet(serverCore), on.IsSet(clientCore)})
	}
}

func TestServerAndClientHaveOneCoreEach(t *testing.T) {
	undo, err := UseClientCore()
	if err != nil {
		t.Skip(err)
	}
	requireCores(t, "self", false, true)
	env := &Environment{Dir: t.TempDir(), OneCore: 3}
	require.NoError(t, env.Programs.Build(t.Context(), "../..", t.TempDir(), Sqlbrain))
	r, err := env.Start(t.Context(), System{Product: Sqlbrain, Engine: SQLite})
	defer func() { require.NoError(t, r.Close()) }()
	require.NoError(t, err)
	server := strconv.Itoa(r.Server(0))
	requireCores(t, server, true, false)
	environment, err := os.ReadFile("/proc/" + server + "/environ")
	require.NoError(t, err)
	require.Contains(t, strings.Split(string(environment), "\x00"), "GOMAXPROCS=3")
	require.NoError(t, undo())
	requireCores(t, "self", true, true)
}
