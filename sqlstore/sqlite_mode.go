package sqlstore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"runtime"
)

// fileMode is the mode of the files that this package creates: their content is for
// the server's own user.
const fileMode fs.FileMode = 0o600

// sqliteSuffixes are what the names of an SQLite database's files add to its own.
// SQLite gives the log and the shared memory the mode of the database.
var sqliteSuffixes = []string{"", "-wal", "-shm", lockSuffix}

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
	return errors.Join(f.Chmod(fileMode), f.Close())
}

// warnOfModes logs the files of the SQLite database at path that other users may read
// or write.
func warnOfModes(logger *slog.Logger, path string) {
	if runtime.GOOS == "windows" { // its modes do not say who has access
		return
	}
	path, err := realPath(path)
	if err != nil {
		return // opening the file fails as well, and says why
	}
	for _, suffix := range sqliteSuffixes {
		info, err := os.Stat(path + suffix)
		if err == nil && info.Mode().Perm()&^fileMode != 0 {
			logger.Warn("other users may access a file of the database; its mode is left as it is, set 0600 to keep them out",
				"file", path+suffix, "mode", fmt.Sprintf("%#o", info.Mode().Perm()))
		}
	}
}
