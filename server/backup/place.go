package backup

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"path"
	"path/filepath"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Place keeps the files of a backup. Names have no directories. Safe for concurrent use.
// Errors of all methods: fs.ErrPermission, ctx's, those of the disk or the network, which may pass. A bucket also has
// errBucket, and errChanged for a manifest that another process has written since this one read or wrote it.
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

// OpenPlace returns the place that a URL names: file:///DIRECTORY, which need not exist yet, or s3://BUCKET/PREFIX. role,
// if not nil, has credentials for a bucket where the environment and the files of the AWS tools have none.
func OpenPlace(target string, role credentials.Provider) (Place, error) {
	u, err := url.Parse(target)
	switch {
	case err != nil:
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(filepath.FromSlash(u.Path)):
		return directory(filepath.FromSlash(path.Clean(u.Path))), nil
	case u.Scheme == "s3" && u.Host != "" && u.Port() == "":
		return openBucket(u, role)
	}
	if err != nil || u.User != nil || u.RawQuery != "" {
		target = "the URL" // it may hold a secret
	}
	return nil, fmt.Errorf("%s names no place for a backup: it must be file:///DIRECTORY or s3://BUCKET/PREFIX", target)
}
