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
