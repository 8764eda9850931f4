package sqlite

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestDatabaseThatIsAMountPointIsRefused(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "x.db")
	for _, name := range []string{path, path + "-real"} {
		require.NoError(t, os.WriteFile(name, nil, 0o600))
	}
	if err := unix.Mount(path+"-real", path, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("only root may mount: %v", err)
	}
	defer func() { require.NoError(t, unix.Unmount(path, 0)) }()
	_, err := OpenDB(parse(t, "sqlite://"+path), sqlstore.Options{})
	require.ErrorIs(t, err, sqlstore.ErrUnfit)
	db, err := OpenDB(parse(t, "sqlite://"+path+"-real"), sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, db.Close())
}
