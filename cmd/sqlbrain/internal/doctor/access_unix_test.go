//go:build linux || darwin || freebsd

package doctor

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMayWrite(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "db")
	if err := mayWrite(file); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that does not exist: %v", err)
	}
	if err := os.WriteFile(file, nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := mayWrite(dir); err != nil {
		t.Error(err)
	}
	if err := mayWrite(file); os.Geteuid() != 0 && !errors.Is(err, fs.ErrPermission) || os.Geteuid() == 0 && err != nil {
		t.Errorf("a file for reading only: %v", err)
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
