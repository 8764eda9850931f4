package sqlite

import (
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// replaceDataSync replaces both ways to flush a log during the test, which must not be parallel.
func replaceDataSync(t *testing.T, waiting, byKernel func(descriptor int) error) {
	t.Helper()
	fdatasync, kernelFdatasync = waiting, byKernel
	t.Cleanup(func() { fdatasync, kernelFdatasync = unix.Fdatasync, flushByKernel })
}

func fails(int) error { return unix.EIO }

// TestLogIsSyncedByFdatasyncAfterItsDirectory: the default file system's first sync of a new log also
// flushes the directory.
func TestLogIsSyncedByFdatasyncAfterItsDirectory(t *testing.T) {
	tls, file := diskFile(t)
	at[sqlite3.TunixFile](file).Fh = 7
	interrupts := 2
	replaceDataSync(t, func(descriptor int) error {
		disk.calls = append(disk.calls, fmt.Sprintf("fdatasync %d", descriptor))
		if interrupts--; interrupts >= 0 {
			return unix.EINTR
		}
		return nil
	}, fails)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	for range 2 {
		writeTo(tls, file, []byte("frame"), 0)
		require.EqualValues(t, sqlite3.SQLITE_OK, vfsSync(tls, file, 0))
	}
	require.Equal(t, []string{"write 5", "sync", "write 5", "fdatasync 7", "fdatasync 7", "fdatasync 7"}, disk.calls)

	replaceDataSync(t, fails, fails)
	require.EqualValues(t, sqlite3.SQLITE_IOERR_FSYNC, vfsSync(tls, file, 0))
	require.EqualValues(t, unix.EIO, at[sqlite3.TunixFile](file).FlastErrno)
}

// TestWhoFlushesTheLog: the kernel by itself, unless few callers wait and there is another thread for others,
// or the kernel does not do it.
func TestWhoFlushesTheLog(t *testing.T) {
	for _, c := range []struct {
		written, threads int
		kernel           error
		want             []string
	}{
		{written: smallCommit, threads: 2, want: []string{"waiting"}},
		{written: smallCommit + 1, threads: 2, want: []string{"by kernel"}},
		{written: 1, threads: 1, want: []string{"by kernel"}},
		{written: 1, threads: 1, kernel: errNotBegun, want: []string{"by kernel", "waiting"}},
		{written: 1, threads: 1, kernel: unix.EIO, want: []string{"by kernel"}},
	} {
		tls, file := diskFile(t)
		walFileOf(file).synced = true
		var calls []string
		replaceDataSync(t, func(int) error {
			calls = append(calls, "waiting")
			return nil
		}, func(int) error {
			calls = append(calls, "by kernel")
			return c.kernel
		})
		before := runtime.GOMAXPROCS(c.threads)
		for half := range 2 {
			writeTo(tls, file, make([]byte, (c.written+half)/2), int64(half*c.written/2))
		}
		rc := vfsSync(tls, file, 0)
		runtime.GOMAXPROCS(before)
		require.Equal(t, c.want, calls, "%+v", c)
		require.Equal(t, errors.Is(c.kernel, unix.EIO), rc != sqlite3.SQLITE_OK, "%+v", c)
		require.Zero(t, walFileOf(file).unsynced)
	}
}

// TestDiskBeginsWithTheDatabaseBeforeItsFlush: whenever a checkpoint has moved writebackSize.
func TestDiskBeginsWithTheDatabaseBeforeItsFlush(t *testing.T) {
	begun := 0
	syncFileRange = func(descriptor int, offset, bytes int64, flags int) error {
		begun++
		return unix.SyncFileRange(descriptor, offset, bytes, flags)
	}
	s := openURL(t, newURL(t), sqlstore.Options{})
	t.Cleanup(func() { syncFileRange = unix.SyncFileRange }) // after the store is closed
	put(t, s, "k", 3*writebackSize)
	conn, err := s.Database().Write().DB.Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	_, err = conn.ExecContext(t.Context(), moveFrames)
	require.NoError(t, err)
	require.Equal(t, 3, begun)
}
