package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// disk stands for the default file system's file in tests of the VFS. SQLite's functions
// have no receivers, so there is one, and its tests are not parallel.
var disk struct {
	content []byte
	calls   []string
	size    int64
	fails   bool
}

func diskFile(t *testing.T) (tls *libc.TLS, file uintptr) {
	t.Helper()
	require.NoError(t, registerVFS())
	tls = libc.NewTLS()
	file = libc.Xcalloc(tls, 1, libc.Tsize_t(uintptr(baseVFS.FszOsFile)+unsafe.Sizeof(walFile{})))
	methods := libc.Xcalloc(tls, 1, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
	*at[sqlite3.Tsqlite3_io_methods](methods) = sqlite3.Tsqlite3_io_methods{
		FxWrite: pointer(diskWrite), FxRead: pointer(diskRead),
		FxFileSize: pointer(diskSize), FxTruncate: pointer(diskTruncate),
		FxSync: pointer(diskSync), FxClose: pointer(diskClose), FxShmLock: pointer(diskLock),
	}
	walFileOf(file).base = at[sqlite3.Tsqlite3_io_methods](methods)
	disk.content, disk.calls, disk.fails = nil, nil, false
	t.Cleanup(func() {
		libc.Xfree(tls, methods)
		libc.Xfree(tls, file)
		tls.Close()
	})
	return tls, file
}

func diskWrite(_ *libc.TLS, _, data uintptr, n int32, offset int64) int32 {
	disk.calls = append(disk.calls, fmt.Sprintf("write %d", n))
	end := int(offset) + int(n)
	if disk.fails {
		return sqlite3.SQLITE_FULL
	}
	if end > len(disk.content) {
		disk.content = append(disk.content, make([]byte, end-len(disk.content))...)
	}
	copy(disk.content[offset:], unsafe.Slice(at[byte](data), n))
	return sqlite3.SQLITE_OK
}

func diskRead(_ *libc.TLS, _, data uintptr, n int32, offset int64) int32 {
	copy(unsafe.Slice(at[byte](data), n), disk.content[min(int(offset), len(disk.content)):])
	return sqlite3.SQLITE_OK
}

func diskSize(_ *libc.TLS, _, size uintptr) int32 {
	*at[int64](size) = disk.size
	return sqlite3.SQLITE_OK
}

func diskTruncate(_ *libc.TLS, _ uintptr, size int64) int32 {
	disk.size = size
	return sqlite3.SQLITE_OK
}

func diskSync(*libc.TLS, uintptr, int32) int32 {
	disk.calls = append(disk.calls, "sync")
	return sqlite3.SQLITE_OK
}

func diskLock(*libc.TLS, uintptr, int32, int32, int32) int32 { return sqlite3.SQLITE_OK }

func diskClose(*libc.TLS, uintptr) int32 {
	disk.calls = append(disk.calls, "close")
	return sqlite3.SQLITE_OK
}

// writeTo writes as SQLite does.
func writeTo(tls *libc.TLS, file uintptr, data []byte, offset int64) int32 {
	p := libc.Xmalloc(tls, libc.Tsize_t(len(data)))
	defer libc.Xfree(tls, p)
	copy(unsafe.Slice(at[byte](p), len(data)), data)
	return vfsWrite(tls, file, p, int32(len(data)), offset)
}

func TestFramesAreWrittenInOneCallBeforeSync(t *testing.T) {
	tls, file := diskFile(t)
	for frame := range int64(10) {
		writeTo(tls, file, make([]byte, 24), frame*4120)
		writeTo(tls, file, make([]byte, 4096), frame*4120+24)
	}
	vfsSync(tls, file, 0)
	require.EqualValues(t, sqlite3.SQLITE_OK, vfsClose(tls, file))
	require.Equal(t, []string{"write 41200", "sync", "close"}, disk.calls)
}

// TestLogIsTruncatedInSteps, but at once when all of it goes.
func TestLogIsTruncatedInSteps(t *testing.T) {
	tls, file := diskFile(t)
	disk.size = 5 * keptLog / 2
	for _, want := range []int64{3 * keptLog / 2, keptLog} {
		require.EqualValues(t, sqlite3.SQLITE_OK, vfsTruncate(tls, file, keptLog))
		require.Equal(t, want, disk.size)
	}
	disk.size = 5 * keptLog / 2
	require.EqualValues(t, sqlite3.SQLITE_OK, vfsTruncate(tls, file, 0))
	require.Zero(t, disk.size)
}

func TestFailedWriteIsReportedInPlaceOfSync(t *testing.T) {
	tls, file := diskFile(t)
	writeTo(tls, file, []byte("lost"), 0)
	disk.fails = true
	require.EqualValues(t, sqlite3.SQLITE_FULL, vfsSync(tls, file, 0))
	require.Equal(t, []string{"write 4"}, disk.calls)
	disk.fails = false
	writeTo(tls, file, []byte("kept"), 4)
	require.EqualValues(t, sqlite3.SQLITE_OK, vfsClose(tls, file))
	require.Equal(t, "\x00\x00\x00\x00kept", string(disk.content))
}

// TestCoalescingKeepsTheFilesContent compares random calls with the same calls on a slice.
func TestCoalescingKeepsTheFilesContent(t *testing.T) {
	for seed := range uint64(50) {
		tls, file := diskFile(t)
		r := rand.New(rand.NewPCG(seed, 0))
		var want []byte
		next := 0
		for range 60 {
			switch r.IntN(10) {
			case 0:
				walFileOf(file).synced = false // the file has no descriptor
				vfsSync(tls, file, 0)
			case 1:
				next = r.IntN(len(want) + 1)
			case 2:
				if len(want) == 0 {
					continue
				}
				from := r.IntN(len(want))
				p := libc.Xcalloc(tls, 1, 100)
				n := min(100, len(want)-from)
				vfsRead(tls, file, p, int32(n), int64(from))
				require.Equal(t, want[from:from+n], unsafe.Slice(at[byte](p), n), "seed %d, at %d", seed, from)
				libc.Xfree(tls, p)
			default:
				data := bytes.Repeat([]byte{byte(r.IntN(256))}, 1+r.IntN(bufferSize/4))
				writeTo(tls, file, data, int64(next))
				if end := next + len(data); end > len(want) {
					want = append(want, make([]byte, end-len(want))...)
				}
				copy(want[next:], data)
				next += len(data)
			}
		}
		vfsClose(tls, file)
		require.True(t, bytes.Equal(disk.content, want), "seed %d: the file has other content", seed)
	}
}

// TestAbandonedPagesAreNotWrittenOverCommits: SQLite writes pages of a large commit to the log, and abandons
// them when its context ends. Another program then commits in their place.
func TestAbandonedPagesAreNotWrittenOverCommits(t *testing.T) {
	t.Parallel()
	const rows = 3 * defaultPageCache / 1000 / 2 // more than the cache of the connection that writes
	raw, faults := newURL(t), faultdriver.New()
	s := openURL(t, raw, sqlstore.Options{WrapConnector: faults.Wrap})
	commit := func(ctx context.Context, rows int, fill byte) error {
		b := s.BeginBatchWrite()
		for i := range rows {
			b.Put(fmt.Appendf(nil, "%08d", i), bytes.Repeat([]byte{fill}, 1000))
		}
		return b.Commit(ctx)
	}
	require.NoError(t, commit(t.Context(), rows, 'a'))
	require.NoError(t, s.Defragment(t.Context())) // which empties the log: to read it would write the pages
	ctx, cancel := context.WithCancel(t.Context())
	put := 0
	faults.Set(func(s faultdriver.Statement) (f faultdriver.Fault) {
		if s.Text == putText {
			if put++; put == rows {
				f.Then = cancel
			}
		}
		return f
	})
	require.ErrorIs(t, commit(ctx, rows, 'b'), context.Canceled)

	other, err := sql.Open("sqlite", parse(t, raw).Path+"?_pragma=wal_autocheckpoint(0)")
	require.NoError(t, err)
	defer func() { require.NoError(t, other.Close()) }()
	_, err = other.Exec("UPDATE object SET object_value = CAST(replace(object_value, 'a', 'c') AS BLOB)")
	require.NoError(t, err)

	require.NoError(t, commit(t.Context(), 10, 'd'))
	var wrong int
	require.NoError(t, other.QueryRow("SELECT count(*) FROM object WHERE internal_key >= CAST('00000010' AS BLOB) AND "+
		"substr(object_value, 1, 1) <> CAST('c' AS BLOB)").Scan(&wrong))
	var result string
	require.NoError(t, other.QueryRow("PRAGMA integrity_check").Scan(&result))
	require.Zero(t, wrong, "rows of the other program's commit that it does not have; integrity check: %s", result)
	require.Equal(t, "ok", result)
}
