package sqlite

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// replaceDataSync replaces fdatasync during the test, which must not be parallel.
func replaceDataSync(t *testing.T, f func(descriptor int) error) {
	t.Helper()
	fdatasync = f
	t.Cleanup(func() { fdatasync = unix.Fdatasync })
}

// TestLogIsSyncedByFdatasyncAfterItsDirectory: the default file system's first sync of a new log also
// flushes the directory.
func TestLogIsSyncedByFdatasyncAfterItsDirectory(t *testing.T) {
	tls, file := diskFile(t)
	gatheringOf(file).extent = extendBytes
	at[sqlite3.TunixFile](file).Fh = 7
	interrupts := 2
	replaceDataSync(t, func(descriptor int) error {
		disk.calls = append(disk.calls, fmt.Sprintf("fdatasync %d", descriptor))
		if interrupts--; interrupts >= 0 {
			return unix.EINTR
		}
		return nil
	})
	for range 2 {
		writeTo(tls, file, []byte("frame"), 0)
		require.EqualValues(t, sqlite3.SQLITE_OK, gatherSync(tls, file, 0))
	}
	require.Equal(t, []string{"write 5", "sync", "write 5", "fdatasync 7", "fdatasync 7", "fdatasync 7"}, disk.calls)

	replaceDataSync(t, func(int) error { return unix.EIO })
	require.EqualValues(t, sqlite3.SQLITE_IOERR_FSYNC, gatherSync(tls, file, 0))
	require.EqualValues(t, unix.EIO, at[sqlite3.TunixFile](file).FlastErrno)
}

func TestCommitWhoseFlushFailedIsUncertain(t *testing.T) {
	s := openURL(t, newURL(t), sqlstore.Options{})
	commit := func(key string) error {
		b := s.BeginBatchWrite()
		b.PutIfNotExist([]byte(key), []byte("v"))
		return b.Commit(t.Context())
	}
	require.NoError(t, commit("before"))
	replaceDataSync(t, func(int) error { return unix.EIO })
	require.ErrorIs(t, commit("lost"), sqlstore.ErrUncertain)
	replaceDataSync(t, unix.Fdatasync)
	require.NoError(t, commit("after"))
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
	replaceDataSync(t, func(descriptor int) error {
		name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", descriptor))
		require.NoError(t, err)
		if name == path+"-wal" { // of this store
			flushed["-wal"] = read(name)
		}
		return unix.Fdatasync(descriptor)
	})
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
