package sqlite

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
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
	gatheringOf(file).extent = extendBytes
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
		require.EqualValues(t, sqlite3.SQLITE_OK, gatherSync(tls, file, 0))
	}
	require.Equal(t, []string{"write 5", "sync", "write 5", "fdatasync 7", "fdatasync 7", "fdatasync 7"}, disk.calls)

	replaceDataSync(t, fails, fails)
	require.EqualValues(t, sqlite3.SQLITE_IOERR_FSYNC, gatherSync(tls, file, 0))
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
		gatheringOf(file).synced = true
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
		rc := gatherSync(tls, file, 0)
		runtime.GOMAXPROCS(before)
		require.Equal(t, c.want, calls, "%+v", c)
		require.Equal(t, errors.Is(c.kernel, unix.EIO), rc != sqlite3.SQLITE_OK, "%+v", c)
		require.Zero(t, gatheringOf(file).written)
	}
}

// TestKernelFlushes flushes files at the same time, and what cannot be flushed.
func TestKernelFlushes(t *testing.T) {
	f, err := newFlusher()
	if err != nil {
		t.Skipf("this kernel has no io_submit, or permits no queue: %v", err)
	}
	f.release()
	const files = 4
	before := len(flushers.idle)
	var all sync.WaitGroup
	for i := range files {
		f, err := os.Create(filepath.Join(t.TempDir(), strconv.Itoa(i)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = f.Close() })
		all.Go(func() {
			for range 50 {
				_, err := f.WriteString("frame")
				assert.NoError(t, err)
				assert.NoError(t, flushByKernel(int(f.Fd())))
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, len(flushers.idle), before+files)

	idle := len(flushers.idle)
	require.ErrorIs(t, flushByKernel(-1), errNotBegun)
	device, err := os.Open("/dev/null")
	require.NoError(t, err)
	defer func() { _ = device.Close() }()
	require.ErrorIs(t, flushByKernel(int(device.Fd())), errNotBegun, "a file that cannot be flushed")
	require.Len(t, flushers.idle, idle)

	f, err = newFlusher()
	require.NoError(t, err)
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	require.NoError(t, err)
	defer func() { _ = file.Close() }()
	raised := f.raised
	f.raised = nil // the eventfd cannot be read
	require.NoError(t, f.begin(int(file.Fd())))
	require.NoError(t, f.wait())
	require.NoError(t, f.result.outcome())
	f.raised = raised
	_, err = f.raised.Read(f.count[:])
	require.NoError(t, err)
	f.release()

	require.ErrorIs(t, flushResult{negative: -int64(unix.EIO)}.outcome(), unix.EIO)
}

func TestCommitWhoseFlushFailedIsUncertain(t *testing.T) {
	s := openURL(t, newURL(t), sqlstore.Options{})
	commit := func(key string) error {
		b := s.BeginBatchWrite()
		b.PutIfNotExist([]byte(key), []byte("v"))
		return b.Commit(t.Context())
	}
	require.NoError(t, commit("before"))
	replaceDataSync(t, fails, fails)
	require.ErrorIs(t, commit("lost"), sqlstore.ErrUncertain)
	replaceDataSync(t, unix.Fdatasync, flushByKernel)
	require.NoError(t, commit("after"))
}

// TestCommitWhoseFlushFailedIsNotRecovered: the kernel may lose data whose flush failed and report the next flush as
// successful. So the next process must not take such a commit from the log, and commit after it.
func TestCommitWhoseFlushFailedIsNotRecovered(t *testing.T) {
	raw := newURL(t)
	s := openURL(t, raw, sqlstore.Options{})
	commit := func(key string) error {
		b := s.BeginBatchWrite()
		b.PutIfNotExist([]byte(key), []byte("v"))
		return b.Commit(t.Context())
	}
	recovered := func() sqlstore.Store {
		crashed := newURL(t)
		after := parse(t, crashed).Path
		require.NoError(t, os.Mkdir(filepath.Dir(after), 0o700))
		for _, suffix := range []string{"", "-wal"} {
			content, err := os.ReadFile(parse(t, raw).Path + suffix)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(after+suffix, content, 0o600))
		}
		return openURL(t, crashed, sqlstore.Options{})
	}
	require.NoError(t, commit("before"))
	replaceDataSync(t, fails, fails)
	require.ErrorIs(t, commit("lost"), sqlstore.ErrUncertain)
	replaceDataSync(t, unix.Fdatasync, flushByKernel)
	r := recovered()
	_, err := r.Get(t.Context(), []byte("before"))
	require.NoError(t, err)
	_, err = r.Get(t.Context(), []byte("lost"))
	require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)

	require.NoError(t, commit("after"))
	_, err = recovered().Get(t.Context(), []byte("after"))
	require.NoError(t, err)
}

// TestFailedFlushDestroysOnlyTheCommit: not what was there before, nor, when the write lock has been released, what
// another process may have written since.
func TestFailedFlushDestroysOnlyTheCommit(t *testing.T) {
	tls, file := diskFile(t)
	g := gatheringOf(file)
	g.extent, g.synced = extendBytes, true
	frame, none := bytes.Repeat([]byte{1}, 100), make([]byte, frameHeader)
	replaceDataSync(t, func(int) error { return nil }, fails)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	writeTo(tls, file, frame, 0)
	require.EqualValues(t, sqlite3.SQLITE_OK, gatherSync(tls, file, 0))

	replaceDataSync(t, fails, fails)
	writeTo(tls, file, frame, 100)
	writeTo(tls, file, frame, 200)
	writeTo(tls, file, frame[:50], 150) // a page that changes again in the same transaction
	require.EqualValues(t, sqlite3.SQLITE_IOERR_FSYNC, gatherSync(tls, file, 0))
	require.Equal(t, slices.Concat(frame, none, frame[frameHeader:], frame), disk.content)

	g.log = file // the same file stands for the database
	writeTo(tls, file, frame, 100)
	require.EqualValues(t, sqlite3.SQLITE_OK, gatherShmLock(tls, file, writeLock, 1, sqlite3.SQLITE_SHM_UNLOCK))
	require.EqualValues(t, sqlite3.SQLITE_IOERR_FSYNC, gatherSync(tls, file, 0), "as a checkpoint does it")
	require.Equal(t, slices.Concat(frame, frame, frame), disk.content)
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
