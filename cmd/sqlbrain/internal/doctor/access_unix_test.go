//go:build linux || darwin || freebsd

package doctor

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMayWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "db")
	require.ErrorIs(t, mayWrite(file), fs.ErrNotExist, "a file that does not exist")
	require.NoError(t, os.WriteFile(file, nil, 0o400))
	require.NoError(t, mayWrite(dir))
	if os.Geteuid() == 0 {
		require.NoError(t, mayWrite(file))
	} else {
		require.ErrorIs(t, mayWrite(file), fs.ErrPermission, "a file for reading only")
	}
}

func TestMayWriteDatabase(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sqlbrain.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, mayWriteDatabase(path), "without a log")
	for _, suffix := range []string{"-wal", "-shm"} {
		require.NoError(t, os.Symlink(path+suffix, path+suffix)) // nobody may write what leads to itself
		require.ErrorContains(t, mayWriteDatabase(path), path+suffix)
		require.NoError(t, os.Remove(path+suffix))
	}
}
