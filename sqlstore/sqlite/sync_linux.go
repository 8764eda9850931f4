package sqlite

import (
	"errors"

	"golang.org/x/sys/unix"
	"modernc.org/libc"
	sqlite3 "modernc.org/sqlite/lib"
)

// fdatasync flushes the data of a file, and its size if that changed. Tests replace it.
var fdatasync = unix.Fdatasync

// syncData flushes the log as SQLite does where fdatasync is known when it is compiled, which it is
// not in the driver: fsync flushes the times of the file as well, so each commit writes to the
// journal of the file system.
func syncData(_ *libc.TLS, file uintptr, _ int32) int32 {
	f := at[sqlite3.TunixFile](file) // the default file system's
	for {
		err := fdatasync(int(f.Fh))
		if err == nil {
			return sqlite3.SQLITE_OK
		}
		var errno unix.Errno
		if !errors.As(err, &errno) || errno != unix.EINTR {
			f.FlastErrno = int32(errno)
			return sqlite3.SQLITE_IOERR_FSYNC
		}
	}
}
