package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
	fails   bool
}

func diskFile(t *testing.T) (tls *libc.TLS, file uintptr) {
	t.Helper()
	if err := registerVFS(); err != nil {
		t.Fatal(err)
	}
	tls = libc.NewTLS()
	file = libc.Xcalloc(tls, 1, libc.Tsize_t(uintptr(baseVFS.FszOsFile)+unsafe.Sizeof(walFile{})))
	methods := libc.Xcalloc(tls, 1, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_io_methods{})))
	*at[sqlite3.Tsqlite3_io_methods](methods) = sqlite3.Tsqlite3_io_methods{
		FxWrite: pointer(diskWrite), FxRead: pointer(diskRead),
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
	if rc := vfsClose(tls, file); rc != sqlite3.SQLITE_OK {
		t.Error(rc)
	}
	if want := []string{"write 41200", "sync", "close"}; !slices.Equal(disk.calls, want) {
		t.Errorf("%v, want %v", disk.calls, want)
	}
}

func TestFailedWriteIsReportedInPlaceOfSync(t *testing.T) {
	tls, file := diskFile(t)
	writeTo(tls, file, []byte("lost"), 0)
	disk.fails = true
	if rc := vfsSync(tls, file, 0); rc != sqlite3.SQLITE_FULL || !slices.Equal(disk.calls, []string{"write 4"}) {
		t.Errorf("%d after %v, want %d after one write", rc, disk.calls, sqlite3.SQLITE_FULL)
	}
	disk.fails = false
	writeTo(tls, file, []byte("kept"), 4)
	if rc := vfsClose(tls, file); rc != sqlite3.SQLITE_OK ||
		!bytes.HasPrefix(disk.content, []byte("\x00\x00\x00\x00kept")) {
		t.Errorf("%d, %q", rc, disk.content[:min(8, len(disk.content))])
	}
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
				if !bytes.Equal(unsafe.Slice(at[byte](p), n), want[from:from+n]) {
					t.Fatalf("seed %d: read something else at %d", seed, from)
				}
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
		if !bytes.Equal(disk.content, want) {
			t.Fatalf("seed %d: the file has other content", seed)
		}
	}
}

// TestSQLiteCommitLargerThanItsCache: SQLite writes pages to the log before the commit, some
// of them twice, and abandons them if the commit fails.
func TestSQLiteCommitLargerThanItsCache(t *testing.T) {
	t.Parallel()
	s, ctx := openURL(t, newURL(t), sqlstore.Options{}), context.Background()
	const rows = 10_000
	key := func(i int) []byte { return fmt.Appendf(nil, "%08x", uint32(i)*2654435761) }
	for attempt := range 3 {
		b := s.BeginBatchWrite()
		for i := range rows {
			b.Put(key(i), bytes.Repeat([]byte{byte(attempt)}, 4*defaultPageCache/rows))
		}
		fails := attempt == 1
		if fails {
			b.CAS([]byte("none"), []byte("new"), []byte("old"))
		}
		var conflict *sqlstore.Conflict
		if err := b.Commit(ctx); fails != errors.As(err, &conflict) || !fails && err != nil {
			t.Fatal(err)
		}
		for _, i := range []int{0, rows / 2, rows - 1} {
			want := byte(attempt)
			if fails {
				want--
			}
			if v, err := s.Get(ctx, key(i)); err != nil || len(v) == 0 || v[0] != want || v[len(v)-1] != want {
				t.Fatalf("after commit %d row %d is %d bytes (%v)", attempt, i, len(v), err)
			}
		}
	}
	var result string
	if err := s.Database().SQL().QueryRow("PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		t.Errorf("%s, %v", result, err)
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
	require.NoError(t, other.QueryRow("SELECT count(*) FROM object WHERE internal_key >= CAST('00000010' AS BLOB) AND substr(object_value, 1, 1) <> CAST('c' AS BLOB)").Scan(&wrong))
	var result string
	require.NoError(t, other.QueryRow("PRAGMA integrity_check").Scan(&result))
	require.Zero(t, wrong, "rows of the other program's commit that it does not have; integrity check: %s", result)
	require.Equal(t, "ok", result)
}
