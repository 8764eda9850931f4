package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"github.com/sqlbrain/sqlbrain/sqlstore/durable"
)

// fileMode is the mode of the files that this package creates: only the server's user may
// read them.
const fileMode fs.FileMode = 0o600

// sqliteSuffixes are added to a database's name to name its files. SQLite gives the log and
// the shared memory the mode of the database.
var sqliteSuffixes = []string{"", logSuffix, "-shm", lockSuffix}

// createPrivate creates an empty file with fileMode, whatever the umask. A file that
// exists is left as it is.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, fileMode)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(fileMode), f.Close(), flushDir(filepath.Dir(path)))
}

// flushDir is replaced by tests.
var flushDir = durable.FlushDir

// warnOfModes logs the files of the SQLite database at path that other users may read
// or write.
func warnOfModes(logger *slog.Logger, path string) {
	if runtime.GOOS == "windows" { // its modes do not say who has access
		return
	}
	path, err := realPath(path)
	if err != nil {
		return // opening the file fails as well, and reports why
	}
	for _, suffix := range sqliteSuffixes {
		info, err := os.Stat(path + suffix)
		if err == nil && info.Mode().Perm()&^fileMode != 0 {
			logger.Warn("other users may access a file of the database; its mode is left as it is, set 0600 to keep them out",
				"file", path+suffix, "mode", fmt.Sprintf("%#o", info.Mode().Perm()))
		}
	}
}
