package sqlite

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// TestAcknowledgedCommitsSurviveLossOfPower keeps only the parts of the log that were flushed by the
// end of each commit. A checkpoint in every few commits makes SQLite begin the log again.
func TestAcknowledgedCommitsSurviveLossOfPower(t *testing.T) {
	raw := newURL(t)
	path := parse(t, raw).Path
	s := openURL(t, raw, sqlstore.Options{})
	_, err := s.Database().SQL().ExecContext(t.Context(), "PRAGMA wal_autocheckpoint = 20")
	require.NoError(t, err)
	read := func(name string) []byte {
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		return content
	}
	flushed := map[string][]byte{} // by suffix
	keep := func(descriptor int) error {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", descriptor))
		require.NoError(t, err)
		if name == path+"-wal" { // of this store
			flushed["-wal"] = read(name)
		}
		return unix.Fdatasync(descriptor)
	}
	replaceDataSync(t, keep, keep)
	logs := map[string]bool{}
	for i := range 20 {
		// SQLite flushes the file at a checkpoint, and then only the log until the next one.
		flushed[""] = read(path)
		b := s.BeginBatchWrite()
		b.PutIfNotExist(fmt.Appendf(nil, "k%d", i), make([]byte, 5000))
		require.NoError(t, b.Commit(t.Context()))
		logs[string(flushed["-wal"][12:16])] = true // the number of checkpoints before it
		crashed := newURL(t)
		after := parse(t, crashed).Path
		require.NoError(t, os.Mkdir(filepath.Dir(after), 0o700))
		for suffix, content := range flushed {
			require.NoError(t, os.WriteFile(after+suffix, content, 0o600))
		}
		value, err := openURL(t, crashed, sqlstore.Options{}).Get(t.Context(), fmt.Appendf(nil, "k%d", i))
		require.NoError(t, err, "commit %d", i)
		require.Len(t, value, 5000)
	}
	require.Greater(t, len(logs), 2)
}
