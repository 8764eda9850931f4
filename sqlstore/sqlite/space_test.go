//go:build linux || darwin

package sqlite

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// setDisk makes all disks have so many blocks of 4 KiB during the test, which must not be parallel.
func setDisk(t *testing.T, blocks, free uint64) {
	t.Helper()
	original := statfs
	t.Cleanup(func() { statfs = original })
	statfs = func(path string, out *unix.Statfs_t) error {
		if err := original(path, out); err != nil {
			return err
		}
		out.Bsize, out.Blocks, out.Bfree, out.Bavail = 4<<10, blocks, free+1, free
		return nil
	}
}

func TestFreeSpace(t *testing.T) {
	s := openURL(t, newURL(t), sqlstore.Options{})
	for name, c := range map[string]struct {
		blocks        uint64
		free, reserve int64
	}{
		"a large disk": {1 << 30, 5 << 12, 128 << 20},
		"a medium one": {1 << 16, 5 << 12, 16 << 20},
		"a small disk": {1 << 13, 5 << 12, 8 << 20},
		"no limit":     {0, 0, 0}, // tmpfs with size=0
	} {
		setDisk(t, c.blocks, 5)
		free, reserve, err := s.FreeSpace(t.Context())
		require.NoError(t, err)
		require.Equal(t, c.free, free, name)
		require.Equal(t, c.reserve, reserve, name)
	}
	statfs = func(string, *unix.Statfs_t) error { return unix.EACCES } // until the clean-up of setDisk
	_, reserve, err := s.FreeSpace(t.Context())
	require.ErrorIs(t, err, unix.EACCES)
	require.Zero(t, reserve)
}

// On a nearly full disk the file needs what is left, on a small one already before anything is refused.
func TestLogDoesNotGrowOnANearlyFullDisk(t *testing.T) {
	for name, blocks := range map[string][2]uint64{
		"nothing of 4 TiB is free": {1 << 30, 1}, "half of 64 MiB is free": {1 << 14, 1 << 13},
	} {
		t.Run(name, func(t *testing.T) {
			raw := newURL(t)
			s := openURL(t, raw, sqlstore.Options{})
			setDisk(t, blocks[0], blocks[1])
			_, _, err := s.FreeSpace(t.Context())
			require.NoError(t, err)
			for range 64 {
				put(t, s, "k", 128<<10)
			}
			log, err := os.Stat(parse(t, raw).Path + logSuffix)
			require.NoError(t, err)
			require.Less(t, log.Size(), int64(4<<20), "64 commits of 128 KiB each")
		})
	}
}

// What is in the log goes to the file, so that the commit has its space.
func TestCommitUsesTheBeginningOfALogThatCannotGrow(t *testing.T) {
	fullDisk(t)
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	put(t, s, "k", 128<<10)
	longestLog.Store(2 << 20)
	for range 64 {
		put(t, s, "k", 128<<10)
	}
	longestLog.Store(64 << 10)
	require.ErrorIs(t, commitPut(t, s, "k", 128<<10), sqlstore.ErrFull)
}

// What the file needs for what is only in the log, because a read needs its older pages, is not free, and the log must
// not take it. Pages that the file has, and older frames of a page, need nothing.
func TestFileKeepsTheSpaceThatItNeeds(t *testing.T) {
	s := openURL(t, newURL(t), sqlstore.Options{})
	put(t, s, "old", 4<<20)
	require.NoError(t, s.Defragment(t.Context()))
	setDisk(t, 1<<14, 1<<13)
	used := func() int64 {
		t.Helper()
		free, _, err := s.FreeSpace(t.Context())
		require.NoError(t, err)
		return 1<<25 - free
	}
	require.Zero(t, used())
	reader := beginRead(t, s)
	put(t, s, "old", 4<<20)
	require.Less(t, used(), int64(1<<20), "its pages are used again")
	put(t, s, "new", 4<<20)
	put(t, s, "new", 4<<20)
	require.Greater(t, used(), int64(4<<20))
	require.Less(t, used(), int64(6<<20), "12 MiB in the log")

	setDisk(t, 1<<14, 1<<11)
	require.ErrorIs(t, commitPut(t, s, "k", 1), sqlstore.ErrFull)
	require.ErrorIs(t, s.Defragment(t.Context()), sqlstore.ErrFull)
	require.NoError(t, reader.Rollback())
	put(t, s, "k", 1)
	require.EqualValues(t, 1<<25-1<<23, used())
}

// A log that grew during a read gives its space back to a nearly full disk without a commit: commits are refused.
func TestLogReleasesItsSpaceWithoutACommit(t *testing.T) {
	raw := newURL(t)
	path := parse(t, raw).Path
	s := openURL(t, raw, sqlstore.Options{})
	reader := beginRead(t, s)
	put(t, s, "k", 4<<20)
	setDisk(t, 1<<14, 1<<10)
	free := func() (free int64) {
		free, _, err := s.FreeSpace(t.Context())
		require.NoError(t, err)
		return free
	}
	eventually.True(t, "what the file needs is not free", func() bool { return free() < 1<<20 })
	require.Greater(t, logSize(path), int64(4<<20))
	require.NoError(t, reader.Rollback())
	eventually.True(t, "the log is truncated", func() bool { return free() == 1<<22 && logSize(path) == 0 })
}
