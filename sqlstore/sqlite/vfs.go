package sqlite

import (
	"fmt"
	"sync"
	"unsafe"

	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// SQLite writes each page of a commit to the write-ahead log in two calls, one for a header and
// one for the page. The write-coalescing VFS collects them and writes up to bufferSize in one call.
// Everything else it passes on to SQLite's default VFS, but for four things: on Linux it flushes the
// log by fdatasync (fdatasync_linux.go), there too the disk begins with the database before it is flushed
// (vfsWriteDatabase), it keeps the log's file when SQLite removes it, and truncates a large log in steps.
//
// The buffer is written before the log is read, and before the sync that ends each commit with
// synchronous = FULL (Check requires it). SQLite shows the commit to other connections only after
// that sync, so these never miss what is not written yet. SQLite writes nothing between the sync and
// that, because the default VFS promises not to damage bytes next to those that it writes
// (SQLITE_IOCAP_POWERSAFE_OVERWRITE).
//
// A transaction larger than SQLite's cache writes pages before its commit. If it is rolled back, no
// sync follows, and they are written before the write lock is released: another process may
// write its commits in their place afterwards. So the buffer is empty whenever SQLite asks for the
// size of the log or truncates it, which it does only after a sync or without the write lock.
const (
	vfsName = "sqlbrain"
	// checkedVersion is the version of SQLite whose calls of a VFS were read. Another one gets its
	// default VFS.
	checkedVersion = "3.54.1"
	// bufferSize is at least a page. SQLite's VFS for Unix cannot write more than 128 KiB in one
	// call.
	bufferSize = 64 << 10
	// writebackSize is how many bytes of a database the cache of the operating system gets before the disk begins with
	// them.
	writebackSize = 256 << 10
)

// walFile is the state of one log, or of a database. It follows what the default VFS keeps for a
// file, in memory of SQLite, which never moves. SQLite uses a file in one goroutine at a time.
type walFile struct {
	methods sqlite3.Tsqlite3_io_methods  // of this file
	base    *sqlite3.Tsqlite3_io_methods // of the default VFS

	unsynced int // bytes written since the last sync, or since the disk began with them

	log uintptr // of a database: its open log, 0 for none

	// Of a log:
	database uintptr
	buffer   uintptr // of bufferSize; 0 before the first write
	offset   int64   // in the file, of the start of buffer
	buffered int     // bytes in buffer and not in the file
	synced   bool    // by the default VFS, with its entry in the directory
}

// baseVFS is the default VFS.
var baseVFS *sqlite3.Tsqlite3_vfs

// version is SQLite's. Tests replace it.
var version = sqlite3.SQLITE_VERSION

// chooseVFS returns the name of the VFS to use, "" for the default one.
func chooseVFS() (string, error) {
	if version != checkedVersion {
		return "", nil
	}
	return vfsName, registerVFS()
}

var registerVFS = sync.OnceValue(func() error {
	tls := libc.NewTLS()
	defer tls.Close()
	base := sqlite3.Xsqlite3_vfs_find(tls, 0)
	own := libc.Xcalloc(tls, 1, libc.Tsize_t(unsafe.Sizeof(sqlite3.Tsqlite3_vfs{})))
	name, err := libc.CString(vfsName)
	if err != nil || base == 0 || own == 0 {
		return fmt.Errorf("sqlite: SQLite's default VFS is not usable: %w", err)
	}
	baseVFS = at[sqlite3.Tsqlite3_vfs](base)
	vfs := at[sqlite3.Tsqlite3_vfs](own)
	*vfs = *baseVFS
	vfs.FzName, vfs.FpNext = name, 0
	vfs.FszOsFile += int32(unsafe.Sizeof(walFile{}))
	vfs.FxOpen, vfs.FxDelete = pointer(vfsOpen), pointer(vfsDelete)
	if rc := sqlite3.Xsqlite3_vfs_register(tls, own, 0); rc != sqlite3.SQLITE_OK {
		return fmt.Errorf("sqlite: SQLite refuses a VFS with error %d", rc)
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

// The types of the functions of a VFS.
type (
	openFile   = func(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32
	deleteFile = func(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32
	transfer   = func(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32
	fileSize   = func(tls *libc.TLS, file, size uintptr) int32
	truncating = func(tls *libc.TLS, file uintptr, size int64) int32
	syncFile   = func(tls *libc.TLS, file uintptr, flags int32) int32
	closing    = func(tls *libc.TLS, file uintptr) int32
	locking    = func(tls *libc.TLS, file uintptr, first, n, flags int32) int32
)

func vfsOpen(tls *libc.TLS, vfs, name, file uintptr, flags int32, out uintptr) int32 {
	rc := function[openFile](baseVFS.FxOpen)(tls, vfs, name, file, flags, out)
	if rc != sqlite3.SQLITE_OK || flags&(sqlite3.SQLITE_OPEN_WAL|sqlite3.SQLITE_OPEN_MAIN_DB) == 0 {
		return rc
	}
	f, w := at[sqlite3.Tsqlite3_file](file), walFileOf(file)
	*w = walFile{base: at[sqlite3.Tsqlite3_io_methods](f.FpMethods)}
	w.methods = *w.base
	f.FpMethods = file + uintptr(baseVFS.FszOsFile) // methods is the first field
	if flags&sqlite3.SQLITE_OPEN_WAL == 0 {
		w.methods.FxShmLock = pointer(vfsShmLock)
		w.methods.FxWrite = pointer(vfsWriteDatabase)
		return rc
	}
	w.database = sqlite3.Xsqlite3_database_file_object(tls, name)
	walFileOf(w.database).log = file
	w.methods.FxRead = pointer(vfsRead)
	w.methods.FxWrite = pointer(vfsWrite)
	w.methods.FxSync = pointer(vfsSync)
	w.methods.FxTruncate = pointer(vfsTruncate)
	w.methods.FxClose = pointer(vfsClose)
	return rc
}

func walFileOf(file uintptr) *walFile { return at[walFile](file + uintptr(baseVFS.FszOsFile)) }

// vfsDelete keeps the file of a log, so that the next process writes in place, and its commits do
// not let the file grow. SQLite removes a log when the database has all of it, on disk, and no other
// connection is open.
func vfsDelete(tls *libc.TLS, vfs, name uintptr, syncDir int32) int32 {
	if path := libc.GoString(name); isLog(path) && emptyLog(path) == nil {
		return sqlite3.SQLITE_OK
	}
	return function[deleteFile](baseVFS.FxDelete)(tls, vfs, name, syncDir)
}

// writeBuffered returns the state of file after what was buffered was written, and SQLite's error.
func writeBuffered(tls *libc.TLS, file uintptr) (*walFile, int32) {
	w := walFileOf(file)
	if w.buffered == 0 {
		return w, sqlite3.SQLITE_OK
	}
	n := int32(w.buffered)
	w.buffered = 0
	return w, function[transfer](w.base.FxWrite)(tls, file, w.buffer, n, w.offset)
}

func vfsWrite(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	w := walFileOf(file)
	w.unsynced += int(n)
	if w.buffered == 0 || offset != w.offset+int64(w.buffered) || w.buffered+int(n) > bufferSize {
		if _, rc := writeBuffered(tls, file); rc != sqlite3.SQLITE_OK {
			return rc
		}
		w.offset = offset
	}
	if w.buffer == 0 {
		w.buffer = libc.Xmalloc(tls, bufferSize)
	}
	if w.buffer == 0 || n > bufferSize {
		return function[transfer](w.base.FxWrite)(tls, file, data, n, offset)
	}
	libc.Xmemcpy(tls, w.buffer+uintptr(w.buffered), data, libc.Tsize_t(n))
	w.buffered += int(n)
	return sqlite3.SQLITE_OK
}

func vfsRead(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	w, rc := writeBuffered(tls, file)
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	return function[transfer](w.base.FxRead)(tls, file, data, n, offset)
}

// vfsSync leaves the first sync to the default VFS, which also flushes the directory that the log was
// created in.
func vfsSync(tls *libc.TLS, file uintptr, flags int32) int32 {
	w, rc := writeBuffered(tls, file)
	unsynced := w.unsynced
	w.unsynced = 0
	if rc != sqlite3.SQLITE_OK {
		return rc
	}
	if w.synced {
		return syncData(tls, file, flags, unsynced)
	}
	w.synced = true // or the process ends: see exitIfFlushFailed
	return function[syncFile](w.base.FxSync)(tls, file, flags)
}

// vfsWriteDatabase is called by checkpoints. SQLite flushes the database only at the end of one after which the log
// can begin anew, which a commit waits for: without this, the disk would only then begin with what all checkpoints
// since the last such one have moved.
func vfsWriteDatabase(tls *libc.TLS, file, data uintptr, n int32, offset int64) int32 {
	w := walFileOf(file)
	rc := function[transfer](w.base.FxWrite)(tls, file, data, n, offset)
	if w.unsynced += int(n); w.unsynced >= writebackSize {
		w.unsynced = 0
		startWriteback(file)
	}
	return rc
}

// writeLock is the number of the lock that SQLite holds while it writes to the log.
const writeLock = 0

// vfsShmLock locks or unlocks a database.
func vfsShmLock(tls *libc.TLS, file uintptr, first, n, flags int32) int32 {
	w := walFileOf(file)
	if first == writeLock && flags&sqlite3.SQLITE_SHM_UNLOCK != 0 && w.log != 0 {
		log, _ := writeBuffered(tls, w.log) // pages of a transaction that was rolled back: no error matters
		log.unsynced = 0
	}
	return function[locking](w.base.FxShmLock)(tls, file, first, n, flags)
}

// vfsTruncate gives back at most keptLog at a time of a log that grew beyond that: the commit with which the log begins
// anew waits for it.
func vfsTruncate(tls *libc.TLS, file uintptr, size int64) int32 {
	w := walFileOf(file)
	now := tls.Alloc(8)
	defer tls.Free(8)
	if size == keptLog && function[fileSize](w.base.FxFileSize)(tls, file, now) == sqlite3.SQLITE_OK {
		size = max(size, *at[int64](now)-keptLog)
	}
	return function[truncating](w.base.FxTruncate)(tls, file, size)
}

func vfsClose(tls *libc.TLS, file uintptr) int32 {
	w, rc := writeBuffered(tls, file)
	if w.database != 0 {
		walFileOf(w.database).log = 0
	}
	libc.Xfree(tls, w.buffer)
	if closed := function[closing](w.base.FxClose)(tls, file); closed != sqlite3.SQLITE_OK {
		return closed
	}
	return rc
}
