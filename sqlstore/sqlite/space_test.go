//go:build linux || darwin || freebsd

package sqlite

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestFreeSpace(t *testing.T) {
	s := openURL(t, newURL(t), sqlstore.Options{})
	original := statfs
	t.Cleanup(func() { statfs = original })
	for name, c := range map[string]struct {
		blocks        uint64
		free, reserve int64
	}{
		"a large disk": {1 << 30, 5 << 12, 128 << 20},
		"a small disk": {1 << 14, 5 << 12, 4 << 20},
	} {
		statfs = func(path string, out *unix.Statfs_t) error {
			if err := original(path, out); err != nil {
				return err
			}
			out.Bsize, out.Blocks, out.Bfree, out.Bavail = 1<<12, c.blocks, 6, 5
			return nil
		}
		free, reserve, err := s.FreeSpace(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.free, free, name)
		require.Equal(t, c.reserve, reserve, name)
	}
	statfs = func(string, *unix.Statfs_t) error { return unix.EACCES }
	_, _, err := s.FreeSpace(t.Context())
	require.ErrorIs(t, err, unix.EACCES)
}
