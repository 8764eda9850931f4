package backup

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
)

const (
	manifestName = "manifest.json"
	// manifestFormat is raised when older versions must not read a backup.
	manifestFormat = 2
	// maxFile bounds a segment that is read into memory. Ship makes much smaller ones, unless a commit is larger.
	maxFile = 1 << 30
)

var errFormat = errors.New("another version wrote it")

// manifest says what a place has.
type manifest struct {
	Format    int    `json:"format"`
	Encrypted bool   `json:"encrypted,omitempty"` // all other files
	Cluster   string `json:"cluster"`             // the SHA-256 of the identity row of the cluster in hexadecimal
	Bases     []base `json:"bases"`               // by revision
	// Newest is the newest segment; its Last is 0 if there is none.
	Newest segment `json:"newest"`
	// LogBytes is what the segments after the newest base take.
	LogBytes int64 `json:"log_bytes"`
	// Until is a time up to which all commits are in the backup.
	Until time.Time `json:"until"`
	// Age is how long processes have written the backup. No wall clock counts it.
	Age time.Duration `json:"age_ns"`
	// LastRow is the SHA-256 of the identity row and the first log row of the newest revision, "" if the table had none.
	// Who does not know the identity cannot find out by it which keys were written.
	LastRow string `json:"last_row"`
}

// base is a snapshot file.
type base struct {
	Revision int64     `json:"revision"`
	Nonce    uint64    `json:"nonce"` // another process may make a base of the revision with other bytes
	At       time.Time `json:"at"`    // when that was committed
	// StateAt is a time at which, or before which, its leases, users and roles were read.
	StateAt time.Time `json:"state_at"`
	// Age is that of the manifest at a time when the base had all commits.
	Age   time.Duration `json:"age_ns"`
	Bytes int64         `json:"bytes"`
	Hash  string        `json:"sha256"` // of the file as it is in the place
	// Before is the newest segment of an earlier revision, or of this one. Only in the second case a segment follows that
	// continues both the base and Before: else there is a gap.
	Before segment   `json:"before"`
	Until  time.Time `json:"until"` // of the manifest when it ended with Before
}

// equal reports whether both are the same file.
func (m manifest) equal(other manifest) bool {
	one, err := json.Marshal(m)
	two, oerr := json.Marshal(other)
	return err == nil && oerr == nil && bytes.Equal(one, two)
}

func (b base) name() string { return fmt.Sprintf("base-%020d-%016x.db", b.Revision, b.Nonce) }

// baseNamed returns the base of which a file has the name, with what is in it only.
func baseNamed(name string) (b base, ok bool) {
	_, err := fmt.Sscanf(name, "base-%d-%x.db", &b.Revision, &b.Nonce)
	return b, err == nil && name == b.name()
}

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

// segmentNamed returns the segment of which a file has the name, with the part of the hash that is in it.
func segmentNamed(name string) (s segment, ok bool) {
	_, err := fmt.Sscanf(strings.TrimSuffix(name, ".seg"), "log-%d-%d-%s", &s.First, &s.Last, &s.Hash)
	return s, err == nil && len(s.Hash) == 16 && s.First <= s.Last+1 && name == s.name()
}

// archive is a backup in a place. If several processes write to it, the manifest leads to what one of them wrote.
type archive struct {
	Place
	recipients []age.Recipient // all files but the manifest are encrypted to them, if there are some
	identities []age.Identity
}

// manifest reads the manifest; a place without one has an empty backup. Errors: ErrDamaged, the place's.
func (a archive) manifest(ctx context.Context) (m manifest, err error) {
	raw, err := a.read(ctx, manifestName)
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
	if m.Newest.Last > 0 && len(m.Bases) == 0 {
		return m, fmt.Errorf("%w: %s names no base", ErrDamaged, manifestName)
	}
	slices.SortFunc(m.Bases, func(x, y base) int { return cmp.Compare(x.Revision, y.Revision) })
	return m, nil
}

// complete reads the manifest of a backup that can be restored. Errors: ErrNotCovered if it has no base, ErrIdentity,
// errPlain, ErrDamaged, the place's.
func (a archive) complete(ctx context.Context) (m manifest, err error) {
	m, err = a.manifest(ctx)
	switch {
	case err != nil:
	case m.Encrypted && len(a.identities) == 0:
		err = ErrIdentity
	case len(m.Bases) == 0:
		err = fmt.Errorf("%w: %s holds no backup that can be restored", ErrNotCovered, a)
	case !m.Encrypted && len(a.identities) > 0:
		err = errPlain
	}
	return m, err
}

func (a archive) setManifest(ctx context.Context, m manifest) error {
	raw, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	return a.Create(ctx, manifestName, func(w io.Writer) error {
		_, err := w.Write(append(raw, '\n'))
		return err
	})
}

// read reads a file of up to maxFile bytes. Errors: ErrDamaged, the place's.
func (a archive) read(ctx context.Context, name string) ([]byte, error) {
	r, err := a.Read(ctx, name)
	if err != nil {
		return nil, err
	}
	file, err := io.ReadAll(io.LimitReader(r, maxFile+1))
	if err = errors.Join(err, r.Close()); err == nil && len(file) > maxFile {
		err = fmt.Errorf("%w: %s has more than %d bytes", ErrDamaged, name, maxFile)
	}
	return file, err
}

// chain returns the segments from a revision on to newest, each of which continues the one before. It reads them from
// the newest back, and keeps their names. A segment that cannot be used ends the chain before it, and broken says why.
func (a archive) chain(ctx context.Context, newest segment, from int64) (all []segment, broken error) {
	for s := newest; s.First >= from && s.Last > 0; {
		previous, err := a.check(ctx, s)
		if ctx.Err() != nil || errors.Is(err, ErrIdentity) {
			return nil, err
		}
		if err != nil {
			broken, all = fmt.Errorf("%s: %w", s.name(), err), nil
			if s, err = a.before(ctx, s.First); err != nil {
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

// check reads a segment, and returns the one that it continues. Errors: ErrDamaged, the place's.
func (a archive) check(ctx context.Context, s segment) (previous segment, err error) {
	file, err := a.open(ctx, s)
	if err != nil {
		return previous, err
	}
	h, err := decodeSegment(file, nil)
	switch {
	case err != nil:
		return previous, err
	case h.First != s.First || h.Last != s.Last || h.First > h.Last+1:
		return previous, fmt.Errorf("%w: it has the revisions %d to %d", ErrDamaged, h.First, h.Last)
	case h.Previous.Last != 0 && h.Previous.Last != s.First-1:
		return previous, fmt.Errorf("%w: it continues revision %d", ErrDamaged, h.Previous.Last)
	}
	return h.Previous, nil
}

// stored returns a segment as it is in the place. Errors: ErrDamaged, the place's.
func (a archive) stored(ctx context.Context, s segment) ([]byte, error) {
	file, err := a.read(ctx, s.name())
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: it is missing", ErrDamaged)
	}
	if err == nil && hashOf(file) != s.Hash {
		err = fmt.Errorf("%w: it has another hash", ErrDamaged)
	}
	return file, err
}

// open reads a segment. Errors: ErrDamaged, ErrIdentity, the place's.
func (a archive) open(ctx context.Context, s segment) ([]byte, error) {
	file, err := a.stored(ctx, s)
	if err != nil {
		return nil, err
	}
	plain, err := a.unseal(bytes.NewReader(file))
	if err != nil {
		return nil, err
	}
	if file, err = io.ReadAll(plain); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return file, nil
}

// before returns the newest segment that ends before a revision and has the hash of its name; the zero one if there is
// none.
func (a archive) before(ctx context.Context, revision int64) (newest segment, err error) {
	names, err := a.files(ctx)
	for _, name := range names {
		s, ok := segmentNamed(name)
		if !ok || s.First >= revision || s.Last >= revision || s.Last <= newest.Last {
			continue
		}
		if file, err := a.read(ctx, name); err == nil {
			if s.Hash = hashOf(file); s.name() == name {
				newest = s
			}
		}
	}
	return newest, err
}

// files returns the names of all bases and segments.
func (a archive) files(ctx context.Context) ([]string, error) {
	names, err := a.List(ctx)
	return slices.DeleteFunc(names, func(name string) bool {
		return !strings.HasPrefix(name, "base-") && !strings.HasPrefix(name, "log-")
	}), err
}
