package sqlite

import (
	"errors"
	"runtime"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// fdatasync flushes the data of a file, and its size if that changed. Tests replace these.
var (
	fdatasync       = unix.Fdatasync
	kernelFdatasync = flushByKernel
	syncFileRange   = unix.SyncFileRange
)

// smallCommit is how many bytes of log a commit of one create or two has at most. So few are committed together
// only if few clients write, whose answers come 0.03 ms earlier if the thread waits for the flush.
const smallCommit = 64 << 10

// syncData flushes the log, to which unsynced bytes were added, as SQLite does where fdatasync is known when it
// is compiled, which it is not in the driver: fsync flushes the times of the file as well, so each commit writes to the
// journal of the file system.
func syncData(_ *libc.TLS, file uintptr, _ int32, unsynced int) int32 {
	f := at[sqlite3.TunixFile](file) // the default VFS's
	err := errNotBegun
	if unsynced > smallCommit || runtime.GOMAXPROCS(0) == 1 {
		err = kernelFdatasync(int(f.Fh))
	}
	for errors.Is(err, errNotBegun) || errors.Is(err, unix.EINTR) {
		err = fdatasync(int(f.Fh))
	}
	if err == nil {
		return sqlite3.SQLITE_OK
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		f.FlastErrno = int32(errno)
	}
	return sqlite3.SQLITE_IOERR_FSYNC
}

// startWriteback has the disk begin with what the operating system's cache has of a file, and does not wait for it.
// Whatever fails is an error of the next flush, as if the system had begun by itself.
func startWriteback(file uintptr) {
	_ = syncFileRange(int(at[sqlite3.TunixFile](file).Fh), 0, 0, unix.SYNC_FILE_RANGE_WRITE)
}
