package durable

import (
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFlushDir(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, FlushDir(dir))
	require.ErrorIs(t, FlushDir(filepath.Join(dir, "none")), fs.ErrNotExist)
}

// TestMakeDirFlushesParents: else the directory may be missing after a loss of power.
func TestMakeDirFlushesParents(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var flushed []string
	flush := func(dir string) error {
		flushed = append(flushed, dir)
		return nil
	}
	path := filepath.Join(dir, "a", "b")
	require.NoError(t, MakeDir(path, flush))
	require.Equal(t, []string{dir, filepath.Join(dir, "a")}, flushed)
	require.DirExists(t, path)
	require.NoError(t, MakeDir(path, flush))
	require.Len(t, flushed, 2)
	require.ErrorIs(t, MakeDir(filepath.Join(dir, "c"), func(string) error { return fs.ErrInvalid }), fs.ErrInvalid)
}
