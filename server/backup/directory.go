package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore/durable"
)

const (
	partPrefix = ".part-" // of temporary files
	// staleAfter is how long a temporary file is not written to before it counts as that of a process that crashed.
	staleAfter = time.Hour
)

// directory is a Place in the file system. Create makes it if necessary.
type directory string

func (d directory) String() string { return "file://" + filepath.ToSlash(string(d)) }

// Read implements Place.
func (d directory) Read(_ context.Context, name string) (io.ReadCloser, error) {
	return os.Open(filepath.Join(string(d), name))
}

// Create implements Place. If the disk hung until after the end of ctx, the file does not get its name: another leader
// may have written it since.
func (d directory) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	if err := durable.MakeDir(string(d), durable.FlushDir); err != nil {
		return err
	}
	return durable.Create(filepath.Join(string(d), name), partPrefix, write, ctx.Err)
}

// List implements Place.
func (d directory) List(context.Context) (names []string, err error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if !d.temporary(e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Remove implements Place.
func (d directory) Remove(_ context.Context, names ...string) (err error) {
	for _, name := range names {
		if rerr := os.Remove(filepath.Join(string(d), name)); !errors.Is(rerr, fs.ErrNotExist) {
			err = errors.Join(err, rerr)
		}
	}
	return err
}

func (directory) temporary(name string) bool {
	return strings.HasPrefix(name, partPrefix) || strings.HasPrefix(name, snapshot.TempPrefix)
}

// clean removes temporary files and directories that have not changed since a time.
func (d directory) clean(since time.Time) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !d.temporary(e.Name()) {
			continue
		}
		path, inUse := filepath.Join(string(d), e.Name()), false
		werr := filepath.WalkDir(path, func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			inUse = inUse || err != nil || info.ModTime().After(since)
			return nil
		})
		if werr == nil && !inUse {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}
