//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestFileWithTwoNamesIsRefused: each name would have its own lock and log, and two processes would write one file.
func TestFileWithTwoNamesIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	name := filepath.Join(t.TempDir(), "y.db")
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	require.NoError(t, os.Link(path, name))
	link := filepath.Join(t.TempDir(), "link.db")
	require.NoError(t, os.Symlink(name, link))
	for _, of := range []string{path, name, link} {
		_, err := OpenDB(parse(t, "sqlite://"+of), sqlstore.Options{})
		require.ErrorIs(t, err, sqlstore.ErrUnfit)
		require.ErrorContains(t, err, of)
	}
	require.NoError(t, os.Remove(path))
	db, err := OpenDB(parse(t, "sqlite://"+link), sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
