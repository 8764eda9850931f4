package backup

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"filippo.io/age"
	"golang.org/x/sync/errgroup"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// ErrNotCovered: a backup does not have the moment.
var ErrNotCovered = errors.New("the backup does not have this moment")

// Moment is a revision or a time; the zero Moment is the end of the backup.
type Moment struct {
	Revision int64
	Time     time.Time
}

// Backup is a backup at a moment. It implements snapshot.Log.
type Backup struct {
	from     archive
	log      archive // of the segments: from, or local
	tempDir  string
	local    string // a temporary directory, "" if there is none
	base     base
	segments []segment
	at       Moment
	damage   error // after the moment

	began      time.Time             // see snapshot.Log
	newest     int64                 // the last revision up to the moment, and when it was committed
	newestTime time.Time             // the zero time if that is in the base
	passed     bool                  // the segments have a commit after the moment
	leases     map[int64]coder.Lease // of the last state
	seen       map[int64]coder.Lease // of all segments
	users      *auth.Change
}

// Source is where a backup is read from.
type Source struct {
	Place Place
	// Identities decrypt an encrypted backup.
	Identities []age.Identity
	// TempDir is where files that are not in a directory are copied, and a base that is encrypted. "": os.TempDir.
	TempDir string
}

// Open finds what a moment needs, and reads all of it once to find damage. Errors: ErrNotCovered, ErrDamaged,
// ErrIdentity, the place's. The caller closes it.
func Open(ctx context.Context, from Source, at Moment) (_ *Backup, err error) {
	b := newBackup(from, at)
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Close())
		}
	}()
	m, err := b.from.complete(ctx)
	if err != nil {
		return nil, err
	}
	end, until, following := m.Newest, m.Until, int64(math.MaxInt64)
	i := len(m.Bases) - 1
	for ; !b.covers(m.Bases[i].Revision, m.Bases[i].At) || b.before(m.Bases[i].StateAt); i-- {
		next := m.Bases[i]
		newer := !b.covers(next.Revision, next.At)
		if newer {
			end, until, following = next.Before, next.Until, next.Revision
		}
		if i == 0 || !newer && next.Before.Last != next.Revision { // no earlier base leads to the moment
			return nil, fmt.Errorf("%w: it begins at revision %d, and with times since %s", ErrNotCovered, next.Revision,
				history.FormatTime(next.StateAt))
		}
	}
	switch err = b.replay(ctx, m.Bases[i], end); {
	case err != nil:
	case b.passed, at.Revision > 0 && b.newest == at.Revision: // the rest does not matter
	case b.damage != nil:
		err = b.damage
	case b.newest < at.Revision:
		err = fmt.Errorf("%w: it ends at revision %d", ErrNotCovered, b.newest)
	case at.Time.After(until) && b.newest < following-1:
		err = fmt.Errorf("%w: it is complete until %s", ErrNotCovered, history.FormatTime(until))
	}
	if err != nil {
		return nil, err
	}
	return b, nil
}

func newBackup(from Source, at Moment) *Backup {
	return &Backup{from: archive{Place: from.Place, identities: from.Identities}, tempDir: from.TempDir, at: at}
}

// replay chooses a base, finds the segments after it up to end, and reads them up to the moment.
func (b *Backup) replay(ctx context.Context, base base, end segment) error {
	b.base = base
	b.newest, b.began = base.Revision, base.At
	if err := b.copySegments(ctx, base.Revision, end.Last); err != nil {
		return err
	}
	b.segments, b.damage = b.log.chain(ctx, end, base.Revision+1)
	if errors.Is(b.damage, ErrIdentity) || ctx.Err() != nil {
		return b.damage
	}
	return b.Versions(ctx, func(rec *coder.Record, at time.Time) error {
		if b.newestTime.IsZero() && at.Before(b.began) {
			b.began = at
		}
		b.newest, b.newestTime = rec.ModRevision, at
		return nil
	})
}

// Close removes temporary files.
func (b *Backup) Close() error {
	if b.local == "" {
		return nil
	}
	return os.RemoveAll(b.local)
}

// copies is how many files are copied at a time.
const copies = 16

// copySegments copies the segments of the revisions after first up to last into a local directory, unless they are in
// one: they are read several times, and each names the one before.
func (b *Backup) copySegments(ctx context.Context, first, last int64) (err error) {
	if _, ok := b.from.Place.(directory); ok {
		b.log = b.from
		return nil
	}
	if err := b.makeLocal(); err != nil {
		return err
	}
	b.log = archive{Place: directory(b.local), identities: b.from.identities}
	names, err := b.from.files(ctx)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(copies)
	for _, name := range names {
		if s, ok := segmentNamed(name); ok && s.First > first && s.Last <= last && filepath.IsLocal(name) {
			group.Go(func() error { return b.copy(ctx, name, func(r io.Reader) (io.Reader, error) { return r, nil }) })
		}
	}
	return group.Wait()
}

// makeLocal makes the local directory, unless it is there.
func (b *Backup) makeLocal() (err error) {
	if b.local == "" {
		b.local, err = os.MkdirTemp(b.tempDir, "sqlbrain-restore-")
	}
	return err
}

// copy copies what change makes of a file into the local directory.
func (b *Backup) copy(ctx context.Context, name string, change func(io.Reader) (io.Reader, error)) (err error) {
	in, err := b.from.Read(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	changed, err := change(in)
	if err != nil {
		return err
	}
	out, err := os.OpenFile(filepath.Join(b.local, name), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, changed)
	return errors.Join(err, out.Close())
}

// Damage returns what is damaged after the moment, nil if nothing is.
func (b *Backup) Damage() error { return b.damage }

// before reports whether the moment is a time before t: leases, users and roles that were read at t may have changed since.
// Of a revision that is not known.
func (b *Backup) before(t time.Time) bool { return !b.at.Time.IsZero() && b.at.Time.Before(t) }

// covers reports whether a revision that was committed at that time is part of the moment.
func (b *Backup) covers(revision int64, at time.Time) bool {
	return (b.at.Revision == 0 || revision <= b.at.Revision) && (b.at.Time.IsZero() || !at.After(b.at.Time))
}

// Newest returns the last revision up to the moment, and when it was committed; the zero time if that is not known.
func (b *Backup) Newest() (revision int64, at time.Time) { return b.newest, b.newestTime }

// Load fills a store with the backup, see snapshot.Saved.Load.
func (b *Backup) Load(ctx context.Context, store sqlstore.Store,
	o snapshot.LoadOptions) (l *snapshot.Loaded, err error) {
	file, err := b.openBase(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	o.Log = b
	return file.Load(ctx, store, o)
}

// openBase opens the base, and checks it. Errors: snapshot.ErrDamaged, ErrIdentity, the place's.
func (b *Backup) openBase(ctx context.Context) (file *snapshot.Saved, err error) {
	path, err := b.localBase(ctx)
	if err == nil {
		file, err = snapshot.Open(ctx, path, false)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.base.name(), err)
	}
	return file, nil
}

// localBase returns the path of the base, or of a copy that is not encrypted. Errors: ErrDamaged, ErrIdentity, the
// place's.
func (b *Backup) localBase(ctx context.Context) (path string, err error) {
	sum := sha256.New()
	if d, ok := b.from.Place.(directory); ok && len(b.from.identities) == 0 {
		path = filepath.Join(string(d), b.base.name())
		file, err := os.Open(path)
		if err != nil {
			return "", err
		}
		_, err = io.Copy(sum, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return "", err
		}
	} else {
		if err := b.makeLocal(); err != nil {
			return "", err
		}
		path = filepath.Join(b.local, b.base.name())
		if _, err := os.Stat(path); err == nil { // of an earlier Load
			return path, nil
		}
		err := b.copy(ctx, b.base.name(), func(r io.Reader) (io.Reader, error) { return b.from.unseal(io.TeeReader(r, sum)) })
		if err != nil {
			return "", errors.Join(err, os.RemoveAll(path))
		}
	}
	if hex.EncodeToString(sum.Sum(nil)) != b.base.Hash {
		return "", fmt.Errorf("%w: it has another hash", ErrDamaged)
	}
	return path, nil
}

// Began implements snapshot.Log.
func (b *Backup) Began() time.Time { return b.began }

// State implements snapshot.Log.
func (b *Backup) State() ([]coder.Lease, *auth.Change) {
	return slices.Collect(maps.Values(b.leases)), b.users
}

// Lease implements snapshot.Log.
func (b *Backup) Lease(id int64) (coder.Lease, bool) {
	l, ok := b.seen[id]
	return l, ok
}

// Versions implements snapshot.Log.
func (b *Backup) Versions(ctx context.Context, f func(rec *coder.Record, at time.Time) error) error {
	b.leases, b.users, b.passed = nil, nil, false
	b.seen = make(map[int64]coder.Lease)
	for _, s := range b.segments {
		if err := ctx.Err(); err != nil {
			return err
		}
		file, err := b.log.open(ctx, s)
		r := &rows{backup: b, f: f, leases: make(map[int64]coder.Lease)}
		var h header
		if err == nil {
			h, err = decodeSegment(file, r.row)
		}
		if err == nil && len(r.expected) > 0 {
			err = fmt.Errorf("%w: versions are missing", ErrDamaged)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s.name(), err)
		}
		maps.Copy(b.seen, r.leases)
		if b.passed = !b.covers(h.Last, r.at); b.passed {
			return nil
		}
		if !h.StateAt.IsZero() && !b.before(h.StateAt) {
			b.leases, b.users = r.leases, &r.users
		}
	}
	return nil
}

// rows takes the rows of one segment.
type rows struct {
	backup   *Backup
	f        func(rec *coder.Record, at time.Time) error
	expected []coder.Change // the first is a put, whose version row follows
	at       time.Time
	leases   map[int64]coder.Lease
	users    auth.Change
}

func (r *rows) row(row sqlstore.Row) error {
	if _, _, err := coder.DecodeLogKey(row.Key); err == nil {
		if len(r.expected) > 0 {
			return fmt.Errorf("%w: versions of revision %d are missing", ErrDamaged, r.expected[0].Revision)
		}
		if r.expected, err = coder.DecodeLog(row.Value); err != nil {
			return err
		}
		if r.at, err = coder.DecodeLogTime(row.Value); err != nil {
			return err
		}
		return r.deletions()
	}
	if len(r.expected) > 0 {
		c := r.expected[0]
		key, revision, err := coder.DecodeVersionKey(row.Key)
		if err != nil || string(key) != string(c.Key) || revision != c.Revision {
			return fmt.Errorf("%w: the version of %q at revision %d is missing", ErrDamaged, c.Key, c.Revision)
		}
		rec, err := coder.DecodeVersion(key, revision, row.Value)
		if err != nil {
			return err
		}
		if r.expected = r.expected[1:]; r.backup.covers(revision, r.at) {
			if err := r.f(rec, r.at); err != nil {
				return err
			}
		}
		return r.deletions()
	}
	return r.state(row)
}

// deletions takes the deletions that are expected now.
func (r *rows) deletions() error {
	for len(r.expected) > 0 && r.expected[0].Tombstone {
		c := &r.expected[0]
		if r.expected = r.expected[1:]; r.backup.covers(c.Revision, r.at) {
			if err := r.f(c.Deletion(), r.at); err != nil {
				return err
			}
		}
	}
	return nil
}

// state takes a row of a lease, a user, a role or the settings.
func (r *rows) state(row sqlstore.Row) error {
	if l, err := coder.DecodeLease(row.Key, row.Value); err == nil {
		r.leases[l.ID] = l
		return nil
	}
	if string(row.Key) == string(coder.AuthSettingsKey()) {
		s, err := coder.DecodeAuthSettings(row.Value)
		r.users.Enabled, r.users.Revision = s.Enabled, s.Revision
		return err
	}
	kind, name, err := coder.DecodeAuthKey(row.Key)
	if err != nil {
		return err
	}
	content, err := coder.DecodeAuthValue(row.Value)
	if err != nil {
		return err
	}
	to := &r.users.Users
	if kind == coder.AuthRole {
		to = &r.users.Roles
	}
	if *to == nil {
		*to = make(map[string][]byte)
	}
	(*to)[name] = content
	return nil
}
