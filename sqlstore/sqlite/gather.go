package sqlite

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite writes each page of a commit to the write-ahead log in two calls, one for a header and
// one for the page. The file system gatherVFS gathers them, and writes up to gatherBytes in one
// call. It passes on everything else to SQLite's default file system.
//
// gatherVFS writes what it has before any other call for the file, and so before the sync
// that ends each commit with synchronous = FULL (Check requires it). SQLite shows the commit to
// other connections only after that sync, so these never miss what is not written yet. SQLite
// writes nothing between the sync and that, because the default file system promises not to
// damage bytes next to those that it writes (SQLITE_IOCAP_POWERSAFE_OVERWRITE).
//
// A transaction larger than SQLite's cache writes pages before its commit. If it is rolled back, nothing
// syncs them, and they are written before the write lock is released: another process may write its
// commits in their place afterwards.
//
// If the sync of a commit fails, gatherVFS destroys the commit in the log. The kernel may drop the data that it
// failed to flush, and report the next sync as successful. A process that recovered the log would find the commit
// nevertheless, and append others, which a loss of power would take along.
//
// On Linux it syncs the log by fdatasync (sync_linux.go). The first sync is left to the default file
// system, which also flushes the directory that the log was created in.
//
// A sync of a log that has grown also writes the file's new size to the journal of the file system. So
// the log grows by extendBytes at a time: gatherVFS writes random bytes after the data that did not fit.
// SQLite takes them for the end of the log, as for pages of a commit that failed: their checksums are
// wrong. With zeros, a page of which the disk took only a part could be complete.
const (
	gatherVFS = "sqlbrain-gather"
	// gatherBytes is at least a page. SQLite's file system for Unix cannot write more than
	// 128 KiB in one call.
	gatherBytes = 64 << 10
	extendBytes = 1 << 20
)

// gathering is the state of one log, or of a database. It follows what the default file system keeps for a
// file, in memory of SQLite, which never moves. SQLite uses a file in one goroutine at a time.
type gathering struct {
	methods sqlite3.Tsqlite3_io_methods  // of this file
	base    *sqlite3.Tsqlite3_io_methods // of the default file system

	log uintptr // of a database: its open log, 0 for none

	// Of a log:
	database uintptr
	buffer   uintptr // of gatherBytes; 0 before the first write
	offset   int64   // in the file, of the start of buffer
	length   int     // of what is in buffer and not in the file
	extent   int64   // up to which the file need not be extended
	synced   bool    // by the default file system, with its entry in the directory
	written  int     // since the last sync, or since the write lock was taken
	start    int64   // in the file, of what was written
}

// baseVFS is the default file system.
var baseVFS *sqlite3.Tsqlite3_vfs

// registerGather makes gatherVFS known to SQLite.
var registerGather = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	base := sqlite3.Xsqlite3_vfs_find(tls, 0)
	own := libc.Xcalloc(tls, 1, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	name, err := libc.CString(gatherVFS)
	if err != nil || base == 0 || own == 0 {
		return fmt.Errorf("sqlstore: SQLite's default file system is not usable: %w", err)
	}
	baseVFS = at[sqlite3.Tsqlite3_vfs](base)
	vfs := at[sqlite3.Tsqlite3_vfs](own)
	*vfs = *baseVFS
	vfs.FzName, vfs.FpNext = name, 0
	vfs.FszOsFile += int32(unsafe.Sizeof(gathering{}))
	vfs.FxOpen = pointer(gatherOpen)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, own, 0); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("sqlstore: SQLite refuses a file system with error %d", rc)
	}
	return nil
})

// at returns what is at an address in memory of SQLite.
func at[T any](address uintptr) *T {
	return (*T)(*(*unsafe.Pointer)(unsafe.Pointer(&address))) // #nosec G103 -- SQLite gave the address, and keeps what is there
}

// pointer returns a function as SQLite keeps it. It must not be a closure or a method.
func pointer[F any](f F) uintptr {
	return *(*uintptr)(unsafe.Pointer(&f)) // #nosec G103 -- as the driver does it: a function's value is one pointer
}

// function is the inverse of pointer.
func function[F any](p uintptr) F {
	return *(*F)(unsafe.Pointer(&p)) // #nosec G103 -- SQLite keeps what pointer returned
}

// The types of the functions of a file system.
type (
	openFile = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	transfer = func(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32
	truncate = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFile = func(tls *libc.TLS, file uintptr, flags int32) int32
	fileSize = func(tls *libc.TLS, file, size uintptr) int32
	closing  = func(tls *libc.TLS, file uintptr) int32
	locking  = func(tls *libc.TLS, file uintptr, first, n, flags int32) int32
)

func gatherOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := function[openFile](baseVFS.FxOpen)(tls, vfs, name, file, flags, out)
	if rc != sqlite3.SQLITE_OK || flags&(sqlite3.SQLITE_OPEN_WAL|sqlite3.SQLITE_OPEN_MAIN_DB) == 0 {
		return rc
	}
	f, g := at[sqlite3.Tsqlite3_file](file), gatheringOf(file)
	*g = gathering{base: at[sqlite3.Tsqlite3_io_methods](f.FpMethods)}
	g.methods = *g.base
	f.FpMethods = file + uintptr(baseVFS.FszOsFile) // methods is the first field
	if flags&sqlite3.SQLITE_OPEN_WAL == 0 {
		g.methods.FxShmLock = pointer(gatherShmLock)
		return rc
	}
	g.database = sqlite3.Xsqlite3_database_file_object(tls, name)
	gatheringOf(g.database).log = file
	g.methods.FxRead = pointer(gatherRead)
	g.methods.FxWrite = pointer(gatherWrite)
	g.methods.FxTruncate = pointer(gatherTruncate)
	g.methods.FxSync = pointer(gatherSync)
	g.methods.FxFileSize = pointer(gatherFileSize)
	g.methods.FxClose = pointer(gatherClose)
	return rc
}

func gatheringOf(file uintptr) *gathering { return at[gathering](file + uintptr(baseVFS.FszOsFile)) }

// flushed returns the state of file after what was gathered was written, and SQLite's error.
func flushed(tls *libc.TLS, file uintptr) (*gathering, int32) {
	g := gatheringOf(file)
	if g.length == 0 {
		return g, sqlite3.SQLITE_OK
	}
	n := int32(g.length)
	g.length = 0
	rc := function[transfer](g.base.FxWrite)(tls, file, g.buffer, n, g.offset)
	if end := g.offset + int64(n); rc == sqlite3.SQLITE_OK && end > g.extent {
		g.extend(tls, file, end)
	}
	return g, rc
}

// extend extends the file to a multiple of extendBytes after data that was written up to end. It uses
// the buffer, and never changes what the file has. Its errors are ignored: what does not fit is reported
// when there are data for it.
func (g *gathering) extend(tls *libc.TLS, file uintptr, end int64) {
	size := libc.Xcalloc(tls, 1, 8)
	if size == 0 {
		return
	}
	defer libc.Xfree(tls, size)
	if function[fileSize](g.base.FxFileSize)(tls, file, size) != sqlite3.SQLITE_OK {
		return
	}
	from := max(end, *at[int64](size))
	g.extent = (from + extendBytes - 1) / extendBytes * extendBytes
	filler := at[[gatherBytes / 8]uint64](g.buffer)
	for i := range filler {
		filler[i] = rand.Uint64()
	}
	for rc := int32(sqlite3.SQLITE_OK); from < g.extent && rc == sqlite3.SQLITE_OK; from += gatherBytes {
		rc = function[transfer](g.base.FxWrite)(tls, file, g.buffer, int32(min(gatherBytes, g.extent-from)), from)
	}
}

func gatherWrite(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	g := gatheringOf(file)
	if g.written == 0 {
		g.start = offset
	}
	g.start = min(g.start, offset)
	g.written += int(n)
	if g.length == 0 || offset != g.offset+int64(g.length) || g.length+int(n) > gatherBytes {
		if _, rc := flushed(tls, file); rc != sqlite3.SQLITE_OK {
			return rc
		}
		g.offset = offset
	}
	if g.buffer == 0 {
		g.buffer = libc.Xmalloc(tls, gatherBytes)
	}
	if g.buffer == 0 || n > gatherBytes {
		return function[transfer](g.base.FxWrite)(tls, file, data, n, offset)
	}
	libc.Xmemcpy(tls, g.buffer+uintptr(g.length), data, libc.Tsize_t(n))
	g.length += int(n)
	return sqlite3.SQLITE_OK
}

func gatherRead(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	g, rc := flushed(tls, file)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[transfer](g.base.FxRead)(tls, file, data, n, offset)
}

func gatherTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	g, rc := flushed(tls, file)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	g.extent = min(g.extent, size)
	return function[truncate](g.base.FxTruncate)(tls, file, size)
}

func gatherSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	g, rc := flushed(tls, file)
	written := g.written
	g.written = 0
	switch {
	case rc != sqlite3.SQLITE_OK:
	case g.synced:
		rc = syncData(tls, file, flags, written)
	default:
		rc = function[syncFile](g.base.FxSync)(tls, file, flags)
		g.synced = rc == sqlite3.SQLITE_OK
	}
	if rc != sqlite3.SQLITE_OK && written > 0 {
		g.destroy(tls, file)
	}
	return rc
}

// frameHeader is the size of the header of a page in the log.
const frameHeader = 24

// destroy overwrites the beginning of what was written under the write lock, and not synced: the header of a page, or of
// the log. Its error is ignored, because the sync's is reported.
func (g *gathering) destroy(tls *libc.TLS, file uintptr) {
	if zeros := libc.Xcalloc(tls, 1, frameHeader); zeros != 0 {
		function[transfer](g.base.FxWrite)(tls, file, zeros, frameHeader, g.start)
		libc.Xfree(tls, zeros)
	}
}

func gatherFileSize(tls *libc.TLS, file, size uintptr) int32 {
	g, rc := flushed(tls, file)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[fileSize](g.base.FxFileSize)(tls, file, size)
}

// writeLock is the number of the lock that SQLite holds while it writes to the log.
const writeLock = 0

// gatherShmLock locks or unlocks a database.
func gatherShmLock(tls *libc.TLS, file uintptr, first, n, flags int32) int32 {
	g := gatheringOf(file)
	if first == writeLock && flags&sqlite3.SQLITE_SHM_UNLOCK != 0 && g.log != 0 {
		log, _ := flushed(tls, g.log) // pages of a transaction that was rolled back: no error matters
		log.written = 0               // another process may overwrite them
	}
	return function[locking](g.base.FxShmLock)(tls, file, first, n, flags)
}

func gatherClose(tls *libc.TLS, file uintptr) int32 {
	g, rc := flushed(tls, file)
	if g.database != 0 {
		gatheringOf(g.database).log = 0
	}
	libc.Xfree(tls, g.buffer)
	if closed := function[closing](g.base.FxClose)(tls, file); closed != sqlite3.SQLITE_OK {
		return closed
	}
	return rc
}
