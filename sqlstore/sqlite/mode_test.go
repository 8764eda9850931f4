//go:build unix

package sqlite

import (
	"bytes"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// openLogged opens a migrated store at path, and returns what it logged.
func openLogged(t *testing.T, path string) (*sqldb.Store, string) {
	t.Helper()
	migrate(t, "sqlite://"+path)
	var log bytes.Buffer
	s, err := open(t.Context(), parse(t, "sqlite://"+path),
		sqlstore.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	require.NoError(t, err)
	return s, log.String()
}

// modes returns the modes of the files in dir.
func modes(t *testing.T, dir string) map[string]fs.FileMode {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string]fs.FileMode{}
	for _, e := range entries {
		info, err := e.Info()
		require.NoError(t, err)
		out[e.Name()] = info.Mode().Perm()
	}
	return out
}

// It is not parallel: the umask is the process's.
func TestSQLiteFilesArePrivateWhateverTheUmask(t *testing.T) {
	for _, umask := range []int{0, 0o022, 0o277} {
		old := syscall.Umask(umask)
		dir := t.TempDir()
		require.NoError(t, os.Chmod(dir, 0o755))
		require.NoError(t, os.Symlink("real.db", filepath.Join(dir, "link.db")))
		s, log := openLogged(t, filepath.Join(dir, "link.db"))
		got := modes(t, dir)
		require.NoError(t, s.Close())
		syscall.Umask(old)
		for _, name := range []string{"real.db", "real.db-wal", "real.db-shm", "real.db.lock"} {
			require.EqualValues(t, 0o600, got[name], "umask %#o: %s", umask, name)
		}
		require.NotContains(t, log, "WARN", "umask %#o", umask)
	}
}

func TestSQLiteFileThatExistsKeepsItsModeAndIsWarnedOf(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "test.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Chmod(path, 0o640))
	s, log := openLogged(t, path)
	defer func() { require.NoError(t, s.Close()) }()
	require.EqualValues(t, 0o640, modes(t, dir)["test.db"])
	for _, part := range []string{"WARN", "file=" + path + " ", "mode=0640"} {
		require.Contains(t, log, part)
	}
}
