package backup

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore/durable"
)

const (
	manifestName = "manifest.json"
	partPrefix   = ".part-" // of temporary files
	// manifestFormat is raised when older versions must not read a backup.
	manifestFormat = 1
	// maxFile bounds a segment that is read into memory. Ship makes much smaller ones, unless a commit is larger.
	maxFile = 1 << 30
	// staleAfter is how long a temporary file is not written to before it counts as that of a process that crashed.
	staleAfter = time.Hour
)

var errFormat = errors.New("another version wrote it")

// manifest says what a directory has.
type manifest struct {
	Format  int    `json:"format"`
	Cluster string `json:"cluster"` // the identity row of the cluster in hexadecimal
	Bases   []base `json:"bases"`   // by revision
	// Newest is the newest segment; its Last is 0 if there is none.
	Newest segment `json:"newest"`
	// Until is a time up to which all commits are in the backup.
	Until time.Time `json:"until"`
	// LastRow is the SHA-256 of the first log row of the newest revision, "" if the table had none.
	LastRow string `json:"last_row"`
}

// base is a snapshot file.
type base struct {
	Revision int64     `json:"revision"`
	At       time.Time `json:"at"` // when that was committed
	// Before is the newest segment when it was made. Segments after it continue the base, and do not continue Before.
	Before segment   `json:"before"`
	Until  time.Time `json:"until"` // of the manifest then
}

func (b base) name() string { return fmt.Sprintf("base-%020d.db", b.Revision) }

// segment names a segment.
type segment struct {
	First int64  `json:"first"`
	Last  int64  `json:"last"`
	Hash  string `json:"sha256"`
}

// name has a part of the hash: another process may write the same revisions with other bytes.
func (s segment) name() string {
	return fmt.Sprintf("log-%020d-%020d-%.16s.seg", s.First, s.Last, s.Hash)
}

// directory is a backup in a directory. If several processes write to it, the manifest leads to what one of them wrote.
type directory string

// manifest reads the manifest; a directory without one is an empty backup. Errors: ErrDamaged, the disk's.
func (d directory) manifest() (m manifest, err error) {
	raw, err := os.ReadFile(filepath.Join(string(d), manifestName))
	if errors.Is(err, fs.ErrNotExist) {
		return manifest{Format: manifestFormat}, nil
	}
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(raw, &m); err != nil {
		return m, fmt.Errorf("%w: %s: %w", ErrDamaged, manifestName, err)
	}
	if m.Format != manifestFormat {
		return m, fmt.Errorf("%s has format %d: %w", manifestName, m.Format, errFormat)
	}
	slices.SortFunc(m.Bases, func(a, b base) int { return cmp.Compare(a.Revision, b.Revision) })
	return m, nil
}

func (d directory) setManifest(m manifest) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return d.create(manifestName, func(w io.Writer) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	})
}

// create writes a file, which has its name once it is complete and flushed.
func (d directory) create(name string, write func(io.Writer) error) error {
	if err := durable.MakeDir(string(d), durable.FlushDir); err != nil {
		return err
	}
	return durable.Create(filepath.Join(string(d), name), partPrefix, write, nil)
}

// clean removes temporary files and directories that have not changed since a time.
func (d directory) clean(since time.Time) error {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), partPrefix) && !strings.HasPrefix(e.Name(), snapshot.TempPrefix) {
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

func (d directory) read(name string) ([]byte, error) {
	path := filepath.Join(string(d), name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFile {
		return nil, fmt.Errorf("%w: %s has %d bytes", ErrDamaged, name, info.Size())
	}
	return os.ReadFile(path)
}

// chain returns the segments from a revision on to newest, each of which continues the one before. It reads them from
// the newest back, and keeps their names. A segment that cannot be used ends the chain before it, and broken says why.
func (d directory) chain(newest segment, from int64) (all []segment, broken error) {
	for s := newest; s.Last >= from && s.Last > 0; {
		previous, err := d.check(s)
		if err != nil {
			broken, all = fmt.Errorf("%s: %w", s.name(), err), nil
			if s, err = d.before(s.First); err != nil {
				return nil, errors.Join(broken, err)
			}
			continue
		}
		all = append(all, s)
		s = previous
	}
	slices.Reverse(all)
	if len(all) > 0 && all[0].First != from {
		return nil, errors.Join(broken, fmt.Errorf("%w: no segment begins at revision %d", ErrDamaged, from))
	}
	return all, broken
}

// check reads a segment, and returns the one that it continues. Errors: ErrDamaged, the disk's.
func (d directory) check(s segment) (previous segment, err error) {
	file, err := d.open(s)
	if err != nil {
		return previous, err
	}
	h, err := decodeSegment(file, nil)
	switch {
	case err != nil:
		return previous, err
	case h.First != s.First || h.Last != s.Last || h.First > h.Last:
		return previous, fmt.Errorf("%w: it has the revisions %d to %d", ErrDamaged, h.First, h.Last)
	case h.Previous.Last != 0 && h.Previous.Last != s.First-1:
		return previous, fmt.Errorf("%w: it continues revision %d", ErrDamaged, h.Previous.Last)
	}
	return h.Previous, nil
}

// open reads a segment. Errors: ErrDamaged, the disk's.
func (d directory) open(s segment) ([]byte, error) {
	file, err := d.read(s.name())
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: it is missing", ErrDamaged)
	}
	if err == nil && hashOf(file) != s.Hash {
		err = fmt.Errorf("%w: it has another hash", ErrDamaged)
	}
	return file, err
}

// before returns the newest segment that ends before a revision and has the hash of its name; the zero one if there is
// none.
func (d directory) before(revision int64) (newest segment, err error) {
	names, err := d.files()
	for _, name := range names {
		var s segment
		if _, err := fmt.Sscanf(name, "log-%d-%d-", &s.First, &s.Last); err != nil || s.Last >= revision ||
			s.Last <= newest.Last {
			continue
		}
		if file, err := d.read(name); err == nil {
			if s.Hash = hashOf(file); s.name() == name {
				newest = s
			}
		}
	}
	return newest, err
}

// files returns the names of all bases and segments.
func (d directory) files() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var names []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "base-") || strings.HasPrefix(e.Name(), "log-") {
			names = append(names, e.Name())
		}
	}
	return names, err
}

// Directory returns the directory that a URL names, file:///DIR.
func Directory(target string) (string, error) {
	path, ok := strings.CutPrefix(target, "file://")
	if !ok || !filepath.IsAbs(path) {
		return "", fmt.Errorf("%s names no directory: it must be file:// and an absolute path", target)
	}
	return path, nil
}
