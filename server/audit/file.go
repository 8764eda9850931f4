package audit

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
)

// file appends to the file that a path names. It follows the path: after a rotation that
// renames or removes the file, the next line is in a new one.
type file struct {
	path string
	out  *os.File
	info fs.FileInfo // of out
	torn bool        // out may end in a part of a line
}

const fileMode fs.FileMode = 0o600

func (f *file) open() (err error) {
	if f.out, err = os.OpenFile(f.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, fileMode); err != nil {
		f.out = nil
		return err
	}
	if f.info, err = f.out.Stat(); err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

func (f *file) close() error {
	if f == nil || f.out == nil {
		return nil
	}
	out := f.out
	f.out = nil
	return out.Close()
}

// Write appends one line.
func (f *file) Write(line []byte) (n int, err error) {
	if f.out != nil {
		if named, err := os.Stat(f.path); err != nil || !os.SameFile(named, f.info) {
			_ = f.close() // what was written is the system's already
			f.torn = false
		}
	}
	if f.out == nil {
		if err := f.open(); err != nil {
			return 0, err
		}
	}
	if f.torn {
		line = append([]byte("\n"), line...)
	}
	if n, err = f.out.Write(line); err != nil {
		f.torn = f.torn || n > 0
		return n, errors.Join(err, f.close())
	}
	f.torn = false
	return n, nil
}

// warnOfMode logs that other users may read the file.
func (f *file) warnOfMode(log *slog.Logger) {
	mode := f.info.Mode()
	if runtime.GOOS != "windows" && mode.IsRegular() && mode.Perm()&^fileMode != 0 {
		log.Warn("other users may access the audit log; its mode is left as it is, set 0600 to keep them out", "file", f.path)
	}
}
