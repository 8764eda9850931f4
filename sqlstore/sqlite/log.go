package sqlite

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
)

// logSuffix is added to the database's name to name the write-ahead log.
const logSuffix = "-wal"

// logHeader is the size of the header of a log. Without a valid one SQLite takes nothing from a log.
const logHeader = 32

func isLog(path string) bool { return strings.HasSuffix(path, logSuffix) }

// emptyLog makes SQLite take nothing from the log at path, which no process has open and which keeps
// its size.
func emptyLog(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, logHeader), 0)
	return errors.Join(err, f.Sync(), f.Close()) // a copy may take the place of the database next
}

// logSize returns the size in bytes of the log of the database at path, 0 if there is none.
func logSize(path string) int64 {
	path, err := realPath(path)
	if err != nil {
		return 0
	}
	info, err := os.Stat(path + logSuffix)
	if err != nil {
		return 0
	}
	return info.Size()
}

// inLog reports whether the log at path has something that SQLite may take from it.
func inLog(path string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // of a file that is only read
	var header [logHeader]byte
	if _, err := io.ReadFull(f, header[:]); err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return false, err
	}
	return header != [logHeader]byte{}, nil
}

// rewriteLog writes the log at path again, in place, and flushes it. Linux takes data that it failed
// to flush for flushed, and keeps them in memory as long as it likes: so what can be read from the log
// of a process that ended after a failed flush may not be on disk, and a flush alone would not bring it
// there. The caller keeps others from writing. Tests replace it.
var rewriteLog = func(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	piece := make([]byte, 1<<20)
	for offset := int64(0); err == nil; {
		var n int
		n, err = f.ReadAt(piece, offset)
		if _, failed := f.WriteAt(piece[:n], offset); failed != nil {
			err = failed
		}
		offset += int64(n)
	}
	if errors.Is(err, io.EOF) {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}
