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

func TestServerHasOneCore(t *testing.T) {
	if err := CheckCores(); err != nil {
		t.Skip(err)
	}
	env := &Environment{Dir: t.TempDir(), OneCore: 3}
	require.NoError(t, env.Programs.Build(t.Context(), "../..", t.TempDir(), Sqlbrain))
	r, err := env.Start(t.Context(), System{Product: Sqlbrain, Engine: SQLite})
	defer func() { require.NoError(t, r.Close()) }()
	require.NoError(t, err)

	threads, err := os.ReadDir("/proc/" + strconv.Itoa(r.Server(0)) + "/task")
	require.NoError(t, err)
	for _, thread := range threads {
		id, err := strconv.Atoi(thread.Name())
		require.NoError(t, err)
		var on unix.CPUSet
		if err = unix.SchedGetaffinity(id, &on); errors.Is(err, unix.ESRCH) {
			continue // it has ended
		}
		require.NoError(t, err)
		require.Equal(t, 1, on.Count())
		require.True(t, on.IsSet(0))
	}
	environment, err := os.ReadFile("/proc/" + strconv.Itoa(r.Server(0)) + "/environ")
	require.NoError(t, err)
	require.Contains(t, strings.Split(string(environment), "\x00"), "GOMAXPROCS=3")

	name, args := env.OnClientCore("client", []string{"argument"})
	require.Equal(t, []string{"taskset", "-c", "1", "client", "argument"}, append([]string{name}, args...))
}
