package backup

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
)

// Place keeps the files of a backup. Names have no directories. Safe for concurrent use.
// Errors of all methods: fs.ErrPermission, ctx's, those of the disk or the network, which may pass.
type Place interface {
	// Read opens a file; the caller closes it. Errors: fs.ErrNotExist.
	Read(ctx context.Context, name string) (io.ReadCloser, error)
	// Create writes a file, in place of one of that name. Once it returns nil the file is complete and durable. After an
	// error it is that, or as it was before. Errors: those of write.
	Create(ctx context.Context, name string, write func(io.Writer) error) error
	// List returns the names of all files, in no order. A place that does not exist yet has none.
	List(ctx context.Context) ([]string, error)
	// Remove removes files; those that do not exist are no error.
	Remove(ctx context.Context, names ...string) error
	// String returns the URL, without secrets.
	String() string
}

// OpenPlace returns the place that a URL names, file:///DIRECTORY. It need not exist yet.
func OpenPlace(target string) (Place, error) {
	path, ok := strings.CutPrefix(target, "file://")
	if !ok || !filepath.IsAbs(path) {
		return nil, fmt.Errorf("%s names no place for a backup: it must be file:// and an absolute path", target)
	}
	return directory(filepath.Clean(path)), nil
}
