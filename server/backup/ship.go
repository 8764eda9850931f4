package backup

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"slices"
	"time"

	"filippo.io/age"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/loglimit"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/watch"
)

const (
	defaultInterval      = 800 * time.Millisecond
	defaultStateInterval = 10 * time.Second
	defaultSegmentBytes  = 8 << 20
	defaultBaseInterval  = 24 * time.Hour
	defaultBaseBytes     = 64 << 20
	leastAge             = 10 * time.Minute // of the newest base, before another one follows because of the segments' size
	// commitTime bounds how much later than its time a commit can be read: a leader takes the time, by its clock, before
	// it writes.
	commitTime = 5 * time.Second
	// firstValues and valuesAtATime are how many version rows the first statement of a segment reads, and the most that
	// one reads. Before that the sizes of the values are not known.
	firstValues   = 8
	valuesAtATime = 100
)

// ErrNotContinued: the database does not continue what the place has: it is another cluster's, or lost commits.
var ErrNotContinued = errors.New("the database does not continue this backup: choose an empty place")

// errNotServed: the table is empty, or was restored.
var errNotServed = errors.New("no server has served this table yet: start one on it, and the backup then")

// errGap: the log does not go back to the newest revision of the backup.
var errGap = errors.New("the log does not go back to the end of the backup")

// Config configures Ship.
type Config struct {
	Store sqlstore.Store
	To    Place
	// TempDir is where bases are made, not encrypted, of up to twice the size of the data. "": in the directory of a
	// file:// place that is not encrypted, else os.TempDir.
	TempDir string
	// Recipients, if there are some, are those that all files but the manifest are encrypted to.
	Recipients []age.Recipient
	Log        *slog.Logger
	About      snapshot.About // of the bases
	Metrics    *Metrics       // nil: none
	// Keep is how long moments can be restored, counted while the backup is written; 0: for ever.
	Keep time.Duration
	// KeepBases is how many of the newest bases stay however old they are, with what follows them; at least 1.
	KeepBases int
	// Shipped, if not nil, is called with the newest revision of the backup.
	Shipped func(revision int64)

	// Tests lower these; 0: the defaults.
	Interval      time.Duration // between two looks at the log
	StateInterval time.Duration // between two looks at leases, users and roles
	SegmentBytes  int           // of rows, above which a segment ends
	BaseInterval  time.Duration // between bases, if anything is committed
	BaseBytes     int64         // of segments, above which a new base follows if they are larger than the base
	Now           func() time.Time
	Uptime        func() time.Duration // by a clock that is never set
}

// Ship writes a backup of a table until ctx ends: a base, if the place has none that can be continued, then the
// log as it grows. Servers may serve the table. It keeps one segment in memory. It tries again while the database or
// the place fails. At the end of ctx it writes what is missing, for 2 s at most, and returns nil. Errors:
// ErrNotContinued, ErrDamaged, fs.ErrPermission, sqlstore.ErrDenied or the error of another version's format, of a bucket
// that does not exist, of recipients where the backup has none, or of a table that no server has served.
func Ship(ctx context.Context, cfg Config) error {
	s := newShipper(cfg)
	defer s.stop()
	s.Metrics.point.CompareAndSwap(nil, &point{until: time.Now(), term: ctx.Done()})
	opened := false
	for failures := 0; ctx.Err() == nil; {
		var err error
		if !opened {
			err = s.open(ctx)
			if opened = err == nil; opened && s.position() > 0 && s.Shipped != nil {
				s.Shipped(s.position())
			}
		}
		if err == nil {
			err = s.step(ctx)
			opened = err == nil
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			continue
		}
		s.Metrics.failed(err)
		switch {
		case errors.Is(err, ErrNotContinued), errors.Is(err, ErrDamaged), errors.Is(err, errFormat),
			errors.Is(err, fs.ErrPermission), errors.Is(err, sqlstore.ErrDenied), errors.Is(err, errBucket),
			errors.Is(err, errSealed), errors.Is(err, errNotServed):
			return err
		}
		failures++
		pause := outages.Pause(failures)
		if errors.Is(err, errChanged) {
			s.turns.Warn(s.Log, "taking turns: one writer is enough", "error", err, "to", s.To.String())
		} else {
			s.Log.Warn("cannot continue the backup, trying again", "error", err, "revision", s.position(), "pause", pause)
		}
		_ = retry.Sleep(ctx, pause) // ends with ctx
	}
	s.finish(ctx)
	return nil
}

// finishTime bounds what Ship does after the end of its context.
const finishTime = 2 * time.Second

// finish writes the commits since the last segment: after the last server has stopped, a restore may follow. A
// leader that was deposed leaves them to its successor.
func (s *shipper) finish(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTime)
	defer cancel()
	complete := s.Now().Add(-commitTime)
	token, _, err := fence.LoadToken(ctx, s.Store)
	switch {
	case err != nil, token.Term != s.term, s.position() == 0:
	case s.position() == token.Revision:
		err = s.lookAgain(ctx, token.Revision, complete)
	default:
		s.looked = time.Time{} // users and roles are written too
		for err == nil && s.position() < token.Revision {
			_, err = s.writeSegment(ctx, s.position())
		}
	}
	if err != nil && !errors.Is(err, errChanged) { // else the other writer continues it
		s.Log.Warn("the backup ends before the database", "error", err, "revision", s.position())
	}
}

// outages spaces out attempts while the database or the place fails.
var outages = retry.Backoff{Min: 10 * time.Millisecond, Max: 15 * time.Second}

func newShipper(cfg Config) *shipper {
	cfg.Interval = cmp.Or(cfg.Interval, defaultInterval)
	cfg.StateInterval = cmp.Or(cfg.StateInterval, defaultStateInterval)
	cfg.SegmentBytes = cmp.Or(cfg.SegmentBytes, defaultSegmentBytes)
	cfg.BaseInterval = cmp.Or(cfg.BaseInterval, defaultBaseInterval)
	cfg.BaseBytes = cmp.Or(cfg.BaseBytes, defaultBaseBytes)
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if started := time.Now(); cfg.Uptime == nil {
		cfg.Uptime = func() time.Duration { return time.Since(started) }
	}
	if cfg.Metrics == nil {
		cfg.Metrics = NewMetrics(nil)
	}
	to := archive{Place: measured{cfg.To}, recipients: cfg.Recipients}
	return &shipper{Config: cfg, to: to, mark: compact.NewMark(cfg.Store),
		turns: loglimit.Log{Interval: 5 * time.Minute}}
}

// shipper is one Ship. It belongs to one goroutine.
type shipper struct {
	Config
	to       archive
	mark     *compact.Mark
	secret   []byte // the identity row, once compare has read it
	manifest manifest
	counted  time.Duration // Uptime up to which the manifest's Age counts
	term     int64         // the leadership that was seen last
	gap      bool          // the next segment begins a new chain
	looked   time.Time     // when leases, users and roles were read
	users    int64         // version of the users and roles that were written last, 0: none
	took     time.Duration // making the newest base
	useless  int           // bases in a row that no segment continues
	turns    loglimit.Log  // for a second writer of the place

	next      *nextBase
	notBefore time.Time // of the next base in the background, after one that failed
	again     time.Time // of the next attempt of writeBase
	removal   *job
	dirty     bool // there may be files that no moment needs
}

// stop ends what runs in the background.
func (s *shipper) stop() {
	s.abandonBase()
	s.removal.stop()
	s.removal = nil
}

// observe sets the gauges.
func (s *shipper) observe(ctx context.Context) {
	if !s.manifest.Until.IsZero() {
		s.Metrics.point.Store(&point{s.manifest.Until, s.position(), ctx.Done()})
	}
}

// position returns the newest revision of the backup, 0 if there is none.
func (s *shipper) position() int64 {
	position := s.manifest.Newest.Last
	if n := len(s.manifest.Bases); n > 0 {
		position = max(position, s.manifest.Bases[n-1].Revision)
	}
	return position
}

// age returns the Age that the manifest would have now.
func (s *shipper) age() time.Duration { return s.manifest.Age + s.Uptime() - s.counted }

// open reads the manifest, and compares the table with the backup.
func (s *shipper) open(ctx context.Context) error {
	now, err := s.to.manifest(ctx)
	if err != nil {
		return err
	}
	if s.next != nil && !now.equal(s.manifest) { // another process wrote it
		s.baseFailed(errChanged)
	}
	s.manifest, s.counted, s.dirty = now, s.Uptime(), true
	sealed := len(s.Recipients) > 0
	if s.manifest.Cluster != "" && s.manifest.Encrypted != sealed {
		return ofPlace(errSealed)
	}
	s.manifest.Encrypted = sealed
	if d, ok := s.To.(directory); ok {
		if err := d.clean(time.Now().Add(-staleAfter)); err != nil {
			return ofPlace(err)
		}
	}
	s.observe(ctx)
	newest := s.manifest.Newest
	s.gap = newest.Last != s.position() // a base is newer
	if newest.Last > 0 && needed(newest, s.manifest.Bases) {
		if _, err := s.to.stored(ctx, newest); err != nil {
			return fmt.Errorf("%s: %w", newest.name(), err)
		}
	}
	if s.manifest.Cluster != "" {
		return s.compare(ctx)
	}
	switch names, err := s.to.files(ctx); {
	case err != nil:
		return err
	case len(names) > 0:
		return fmt.Errorf("%w: %s is missing, but not %s", ErrDamaged, manifestName, names[0])
	}
	if s.manifest.Cluster, err = s.identity(ctx); err != nil {
		return err
	}
	return s.to.setManifest(ctx, s.manifest)
}

// identity returns the identity of the cluster as a manifest has it. Errors: those of an unfinished job, the
// database's.
func (s *shipper) identity(ctx context.Context) (string, error) {
	if err := repair.RefuseUnfinished(ctx, s.Store); err != nil {
		return "", err
	}
	identity, err := s.Store.Get(ctx, coder.IdentityKey())
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return "", errNotServed
	}
	if err != nil {
		return "", fmt.Errorf("reading the identity of the cluster: %w", err)
	}
	s.secret = identity
	return hashOf(identity), nil
}

// compare compares the table with the end of the backup. Once it succeeds, what was read before belongs to the history
// of the backup. Errors: ErrNotContinued, those of an unfinished job, the database's.
func (s *shipper) compare(ctx context.Context) error {
	identity, err := s.identity(ctx)
	if err != nil {
		return err
	}
	if identity != s.manifest.Cluster {
		return fmt.Errorf("%w: it is of another cluster, or this one was restored since", ErrNotContinued)
	}
	position := s.position()
	row, err := s.lastRow(ctx, position)
	if err != nil || position == 0 || row == s.manifest.LastRow {
		return err
	}
	if row == "" { // compacted, or lost
		if mark, err := s.mark.Read(ctx); err != nil || position < mark {
			return err
		}
	}
	return fmt.Errorf("%w: revision %d is another one", ErrNotContinued, position)
}

// lastRow returns the hash of the first log row of a commit that ends at a revision, "" if there is none.
func (s *shipper) lastRow(ctx context.Context, revision int64) (string, error) {
	row, err := s.Store.Get(ctx, coder.EncodeLogKey(revision, 1))
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return "", nil
	}
	return s.hashOf(row), err
}

// hashOf returns the LastRow of a log row.
func (s *shipper) hashOf(row []byte) string { return hashOf(slices.Concat(s.secret, row)) }

// step writes a base or a segment, or waits if there is nothing to write.
func (s *shipper) step(ctx context.Context) error {
	complete := s.Now().Add(-commitTime)
	token, _, err := fence.LoadToken(ctx, s.Store)
	if err != nil {
		return err
	}
	position := s.position()
	if s.term = token.Term; position == 0 {
		return s.writeBase(ctx)
	}
	if err := s.maintain(ctx); err != nil {
		return err
	}
	switch {
	case token.Revision < position:
		return fmt.Errorf("%w: it is at revision %d, and the backup at %d", ErrNotContinued, token.Revision, position)
	case token.Revision == position:
		if complete.Sub(s.manifest.Until) >= s.StateInterval {
			if err := s.lookAgain(ctx, position, complete); err != nil {
				return err
			}
		}
		return retry.Sleep(ctx, s.Interval)
	}
	full, err := s.writeSegment(ctx, position)
	switch {
	case errors.Is(err, errGap):
		if s.gap { // nothing continues the newest base, and nothing may continue the next
			s.useless = min(s.useless+1, 10)
			pause := min(s.took<<s.useless, time.Hour)
			s.Log.Warn("history is compacted before the backup can read it, waiting", "pause", pause)
			if err := retry.Sleep(ctx, pause); err != nil {
				return err
			}
		}
		s.abandonBase()
		s.Log.Warn("the backup has a gap, a new base follows", "after", position, "error", err)
		if err := s.writeBase(ctx); err != nil {
			return err
		}
		s.Metrics.gaps.Inc()
		return nil
	case err != nil || full:
		return err
	}
	return retry.Sleep(ctx, s.Interval) // else each commit would be a segment
}

// lookAgain publishes that no commit follows position until a time, and users and roles if they changed.
func (s *shipper) lookAgain(ctx context.Context, position int64, complete time.Time) error {
	var settings coder.AuthSettings
	switch raw, err := s.Store.Get(ctx, coder.AuthSettingsKey()); {
	case errors.Is(err, sqlstore.ErrKeyNotFound):
	case err != nil:
		return err
	default:
		if settings, err = coder.DecodeAuthSettings(raw); err != nil {
			return err
		}
	}
	changed, users := settings.Version != s.users, s.users
	var state []sqlstore.Row
	if changed {
		var err error
		if state, users, err = s.state(ctx); err != nil {
			return err
		}
	}
	if err := s.compare(ctx); err != nil {
		return err
	}
	next := s.manifest
	next.Until = complete
	if !changed {
		return s.publish(ctx, next, s.gap)
	}
	h := header{First: position + 1, Last: position, StateAt: s.stateAt()}
	if err := s.send(ctx, h, state, next); err != nil {
		return err
	}
	s.users = users
	return nil
}

// publish makes next the manifest. Errors: errChanged, the place's.
func (s *shipper) publish(ctx context.Context, next manifest, gap bool) error {
	if _, ok := s.To.(directory); ok { // a bucket compares them by itself
		now, err := s.to.manifest(ctx)
		if err != nil {
			return err
		}
		if !now.equal(s.manifest) {
			return ofPlace(errChanged)
		}
	}
	next.Age = s.age()
	if err := s.to.setManifest(ctx, next); err != nil {
		return err
	}
	s.counted += next.Age - s.manifest.Age
	s.manifest, s.gap = next, gap
	s.observe(ctx)
	if s.Shipped != nil {
		s.Shipped(s.position())
	}
	return nil
}

// writeSegment writes the commits after position, as many as a segment has: then it is full. Errors: errGap, the
// database's, the place's.
func (s *shipper) writeSegment(ctx context.Context, position int64) (full bool, err error) {
	complete := s.Now().Add(-commitTime)
	rows, last, full, err := s.commits(ctx, position)
	// Rows may have been removed while they were read.
	mark, merr := s.mark.Read(ctx)
	switch {
	case merr != nil:
		return false, merr
	case position+1 < mark:
		return false, fmt.Errorf("%w: history begins at revision %d", errGap, mark)
	case err != nil:
		return false, err
	}
	h := header{First: position + 1, Last: last}
	leases, err := s.leases(ctx, rows)
	if err != nil {
		return false, err
	}
	looked, users := s.looked, s.users
	if now := time.Now(); !full && now.Sub(looked) >= s.StateInterval { // a full one may be far behind
		looked = now
		var state []sqlstore.Row
		if state, users, err = s.state(ctx); err != nil {
			return false, err
		}
		leases, h.StateAt = append(leases, state...), s.stateAt()
	}
	// The history may have been replaced while it was read.
	if err := s.compare(ctx); err != nil {
		return false, err
	}
	next := s.manifest
	i := slices.IndexFunc(rows, func(row sqlstore.Row) bool { return bytes.Equal(row.Key, coder.EncodeLogKey(last, 1)) })
	if i < 0 {
		return false, fmt.Errorf("the first log row of revision %d is missing", last)
	}
	next.LastRow = s.hashOf(rows[i].Value)
	if next.Until, err = coder.DecodeLogTime(rows[i].Value); err != nil {
		return false, err
	}
	if !full {
		next.Until = later(next.Until, complete)
	}
	if err := s.send(ctx, h, slices.Concat(rows, leases), next); err != nil {
		return false, err
	}
	s.useless, s.users, s.looked = 0, users, looked
	return full, nil
}

// send writes the next segment, and publishes it with next.
func (s *shipper) send(ctx context.Context, h header, rows []sqlstore.Row, next manifest) error {
	if !s.gap {
		h.Previous = s.manifest.Newest
	}
	plain, err := encodeSegment(h, rows)
	if err != nil {
		return err
	}
	var file bytes.Buffer
	err = s.to.seal(func(w io.Writer) error {
		_, err := w.Write(plain)
		return err
	})(&file)
	if err != nil {
		return err
	}
	next.Newest = segment{First: h.First, Last: h.Last, Hash: hashOf(file.Bytes())}
	next.LogBytes += int64(file.Len())
	err = s.to.Create(ctx, next.Newest.name(), func(w io.Writer) error {
		_, err := w.Write(file.Bytes())
		return err
	})
	if err == nil {
		err = s.publish(ctx, next, false)
	}
	if err == nil && s.next != nil {
		s.next.wrote(next.Newest, int64(file.Len()))
	}
	return err
}

// leases reads the rows of the leases that versions name: they may have been granted since the last state, and may have
// ended at the next.
func (s *shipper) leases(ctx context.Context, rows []sqlstore.Row) (leases []sqlstore.Row, err error) {
	var keys [][]byte
	seen := make(map[int64]bool)
	for _, row := range rows {
		key, revision, err := coder.DecodeVersionKey(row.Key)
		if err != nil {
			continue // a log row
		}
		rec, err := coder.DecodeVersion(key, revision, row.Value)
		if err != nil {
			return nil, err
		}
		if rec.Lease != 0 && !seen[rec.Lease] {
			seen[rec.Lease] = true
			keys = append(keys, coder.EncodeLeaseKey(rec.Lease))
		}
	}
	for some := range slices.Chunk(keys, valuesAtATime) {
		values, err := s.Store.MultiGet(ctx, some)
		if err != nil {
			return nil, err
		}
		for i, value := range values {
			if value != nil {
				leases = append(leases, sqlstore.Row{Key: some[i], Value: value})
			}
		}
	}
	return leases, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// commits reads the log rows of whole commits after position, each followed by the version rows of its puts, and
// returns the newest revision of them. full says that it ended at SegmentBytes, at a gap, or where a base is made.
func (s *shipper) commits(ctx context.Context, position int64) (rows []sqlstore.Row, last int64, full bool, err error) {
	end := int64(math.MaxInt64)
	if s.next != nil && position < s.next.Revision {
		end = s.next.Revision
	}
	lo, hi := coder.LogBounds(position+1, end)
	size, last, expected := 0, position, position+1
	pages := watch.NewPages(firstValues, valuesAtATime, s.SegmentBytes)
	var missing []int // version rows without their values
	next := pages.Next()
	fill := func() error {
		keys := make([][]byte, len(missing))
		for i, at := range missing {
			keys[i] = rows[at].Key
		}
		values, err := s.Store.MultiGet(ctx, keys)
		if err != nil {
			return err
		}
		for i, at := range missing {
			if values[i] == nil {
				return fmt.Errorf("the version row %x is missing", keys[i])
			}
			rows[at].Value = values[i]
			size += len(keys[i]) + len(values[i])
			pages.Add(len(keys[i]) + len(values[i]))
		}
		missing, next = missing[:0], pages.Next()
		return nil
	}
	for row, err := range s.Store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, 0, false, err
		}
		rev, part, err := coder.DecodeLogKey(row.Key)
		if err != nil {
			return nil, 0, false, err
		}
		if full = rev != last && size >= s.SegmentBytes; full {
			break
		}
		changes, err := coder.DecodeLog(row.Value)
		if err != nil {
			return nil, 0, false, err
		}
		if part == 1 && (len(changes) == 0 || changes[0].Revision != expected) {
			if rows == nil {
				return nil, 0, false, fmt.Errorf("%w: no commit has revision %d", errGap, expected)
			}
			full = true // the time after last is not known
			break       // the next segment finds the gap
		}
		rows, last, expected = append(rows, row), rev, rev+1
		size += len(row.Key) + len(row.Value)
		for _, c := range changes {
			if c.Tombstone {
				continue
			}
			rows = append(rows, sqlstore.Row{Key: coder.EncodeVersionKey(c.Key, c.Revision)})
			missing = append(missing, len(rows)-1)
			if len(missing) < next {
				continue
			}
			if err := fill(); err != nil {
				return nil, 0, false, err
			}
		}
	}
	if rows == nil {
		return nil, 0, false, fmt.Errorf("%w: no commit is left after revision %d", errGap, position)
	}
	return rows, last, full || last == end, fill()
}

// stateAt returns the time of a state that was just read. Times before Until keep an earlier one.
func (s *shipper) stateAt() time.Time { return later(s.Now(), s.manifest.Until) }

// state reads the rows of leases, users and roles, and the version of the latter.
func (s *shipper) state(ctx context.Context) (rows []sqlstore.Row, version int64, err error) {
	lo, hi := coder.LeaseBounds()
	for row, err := range s.Store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, 0, err
		}
		rows = append(rows, row)
	}
	users, err := auth.NewUsers(s.Store).Load(ctx) // of one version
	if err != nil {
		return nil, 0, err
	}
	for kind, of := range map[coder.AuthKind]map[string][]byte{coder.AuthUser: users.Users, coder.AuthRole: users.Roles} {
		for name, content := range of {
			rows = append(rows, sqlstore.Row{Key: coder.EncodeAuthKey(kind, name), Value: coder.EncodeAuthValue(content)})
		}
	}
	settings := sqlstore.Row{Key: coder.AuthSettingsKey(), Value: coder.EncodeAuthSettings(users.AuthSettings)}
	return append(rows, settings), users.Version, nil
}
