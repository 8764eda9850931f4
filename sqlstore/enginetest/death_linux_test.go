package enginetest

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const envVictim = "ENGINETEST_VICTIM"

// TestVictim is the process that TestServerDiesWithItsProcess kills.
func TestVictim(t *testing.T) {
	product := Product(os.Getenv(envVictim))
	if product == "" {
		t.Skip("only run by TestServerDiesWithItsProcess")
	}
	s := product.StartServer(t)
	_, err := os.Stdout.WriteString("PID " + strconv.Itoa(s.p.program.ID()) + " " + s.p.dir.path + "\n")
	require.NoError(t, err)
	<-time.After(time.Hour) // killed long before
}

func TestServerDiesWithItsProcess(t *testing.T) {
	for _, product := range []Product{MariaDB, MySQL} {
		t.Run(string(product), func(t *testing.T) { serverDiesWithItsProcess(t, product) })
	}
}

func serverDiesWithItsProcess(t *testing.T, product Product) {
	if _, err := product.Program(); err != nil {
		Need(t, err, ErrNoEngine)
	}
	victim := exec.Command(os.Args[0], "-test.run=^TestVictim$")
	victim.Env = append(os.Environ(), envVictim+"="+string(product))
	victim.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := victim.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, victim.Start())
	var read strings.Builder
	buf := make([]byte, 256)
	for !strings.Contains(read.String(), "\n") {
		n, err := out.Read(buf)
		read.Write(buf[:n])
		require.NoError(t, err, "output: %s", read.String())
	}
	fields := strings.Fields(read.String())
	require.Equal(t, "PID", fields[0], read.String())
	pid, err := strconv.Atoi(fields[1])
	require.NoError(t, err)
	require.NoError(t, syscall.Kill(pid, 0), "the server must run")

	require.NoError(t, victim.Process.Kill())
	require.Error(t, victim.Wait())
	eventually.True(t, "the server to end", func() bool { return !alive(t, pid) })

	// Its directory stays, and the next process removes it: this one, or a
	// concurrent one.
	d, err := makeDirectory()
	require.NoError(t, err)
	eventually.True(t, "the directory to be removed", func() bool { // another process may be doing so
		_, err := os.Stat(fields[2])
		return errors.Is(err, fs.ErrNotExist)
	})
	require.DirExists(t, d.path)
	require.NoError(t, d.remove())
}

// alive reports whether pid runs; a zombie nobody has waited for does not.
func alive(t *testing.T, pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
		return false
	}
	require.NoError(t, err)
	after := string(b[strings.LastIndexByte(string(b), ')')+1:])
	return !strings.HasPrefix(strings.TrimSpace(after), "Z")
}
