package sqlite

import (
	"bytes"
	"math"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// A disk for logs with room for a number of writes, and for logs of a number of bytes, on the default file system.
var (
	room        atomic.Int64
	longestLog  atomic.Int64
	roomyOpen   uintptr
	roomyWrite  uintptr
	fullMethods sqlite3.Tsqlite3_io_methods
)

// fullDisk makes the logs that are opened during the test be on that disk. The test must not be parallel.
func fullDisk(t *testing.T) {
	require.NoError(t, registerVFS())
	room.Store(math.MaxInt64)
	longestLog.Store(math.MaxInt64)
	roomyOpen = baseVFS.FxOpen
	baseVFS.FxOpen = pointer(openOnFullDisk)
	t.Cleanup(func() { baseVFS.FxOpen = roomyOpen })
}

func openOnFullDisk(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := function[openFile](roomyOpen)(tls, vfs, name, file, flags, out)
	if rc == sqlite3.SQLITE_OK && flags&sqlite3.SQLITE_OPEN_WAL != 0 {
		f := at[sqlite3.Tsqlite3_file](file)
		fullMethods = *at[sqlite3.Tsqlite3_io_methods](f.FpMethods)
		roomyWrite = fullMethods.FxWrite
		fullMethods.FxWrite = pointer(writeOnFullDisk)
		f.FpMethods = uintptr(unsafe.Pointer(&fullMethods))
	}
	return rc
}

// writeOnFullDisk writes a part of what does not fit, and fails, as the default file system does.
func writeOnFullDisk(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	if room.Add(-1) >= 0 && offset+int64(n) <= longestLog.Load() {
		return function[transfer](roomyWrite)(tls, file, data, n, offset)
	}
	if rc := function[transfer](roomyWrite)(tls, file, data, n-8, offset); rc != sqlite3.SQLITE_OK {
		return rc
	}
	return sqlite3.SQLITE_FULL
}

// TestCommitOnAFullDiskHasAKnownOutcome fails each write of a commit to the log.
func TestCommitOnAFullDiskHasAKnownOutcome(t *testing.T) {
	fullDisk(t)
	raw := newURL(t)
	path := parse(t, raw).Path
	s := openURL(t, raw, sqlstore.Options{})
	key, value := []byte("k"), bytes.Repeat([]byte("v"), 4*bufferSize)
	commit := func() error {
		b := s.BeginBatchWrite()
		b.PutIfNotExist(key, value)
		return b.Commit(t.Context())
	}
	writes := 0
	for ; ; writes++ {
		room.Store(int64(writes))
		err := commit()
		room.Store(math.MaxInt64)
		if err == nil {
			break
		}
		require.ErrorIs(t, err, sqlstore.ErrFull)
		require.NotErrorIs(t, err, sqlstore.ErrUncertain)
		_, err = s.Get(t.Context(), key)
		require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)

		// What the next process finds after a crash.
		_, err = openURL(t, copyOf(t, path), sqlstore.Options{}).Get(t.Context(), key)
		require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)
	}
	require.Greater(t, writes, 3, "the writes of a commit of %d bytes", len(value))
	got, err := s.Get(t.Context(), key)
	require.NoError(t, err)
	require.Equal(t, value, got)
}

// TestVacuumCopiesToAFile: the copy may be larger than memory. What is temporary otherwise stays in memory.
func TestVacuumCopiesToAFile(t *testing.T) {
	require.NoError(t, registerVFS())
	roomyOpen = baseVFS.FxOpen
	baseVFS.FxOpen = pointer(openTemporary)
	t.Cleanup(func() { baseVFS.FxOpen = roomyOpen })
	s := openURL(t, newURL(t), sqlstore.Options{})
	for _, text := range []string{"PRAGMA auto_vacuum = NONE", "VACUUM"} {
		_, err := s.Database().Write().Exec(text)
		require.NoError(t, err)
	}
	put(t, s, "k", defaultPageCache)
	noTemporary.Store(true)
	require.ErrorContains(t, s.Defragment(t.Context()), "unable to open database file")
	noTemporary.Store(false)
	require.NoError(t, s.Defragment(t.Context()))
	var store int
	require.NoError(t, s.Database().Write().Get(&store, "PRAGMA temp_store"))
	require.Equal(t, 2, store)
}

var noTemporary atomic.Bool // no temporary file can be opened

func openTemporary(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	if noTemporary.Load() && flags&sqlite3.SQLITE_OPEN_DELETEONCLOSE != 0 {
		return sqlite3.SQLITE_CANTOPEN
	}
	return function[openFile](roomyOpen)(tls, vfs, name, file, flags, out)
}
