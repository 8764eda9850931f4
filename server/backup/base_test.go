package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// contents returns all keys at a revision with what etcd says of each.
func contents(t *testing.T, r *replica.Replica, revision int64) (text string) {
	t.Helper()
	res, err := r.Reader.Range(t.Context(), auth.System, &mvcc.RangeRequest{
		KeyRange: mvcc.KeyRange{Key: []byte{0}, End: []byte{0}}, Revision: revision}, true)
	require.NoError(t, err)
	for _, rec := range res.Records {
		text += fmt.Sprintf("%q %x %d %d %d\n", rec.Key, rec.Value, rec.CreateRevision, rec.ModRevision, rec.Version)
	}
	return text
}

// crashing is a place that fails at random: before a call, or after it took effect.
type crashing struct {
	Place
	random *rand.Rand
	rate   float64
}

var errCrash = errors.New("crashed")

func (c *crashing) do(f func() error) error {
	switch x := c.random.Float64(); {
	case x < c.rate/2:
		return errCrash
	case x < c.rate:
		return errors.Join(f(), errCrash)
	}
	return f()
}

func (c *crashing) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	if strings.HasPrefix(name, "base-") { // in another goroutine
		return c.Place.Create(ctx, name, write)
	}
	return c.do(func() error { return c.Place.Create(ctx, name, write) })
}

// TestRetentionKeepsEveryMoment ships on a random schedule, with crashes, compaction and two shippers that take turns.
// Every moment that was in the backup can be restored for as long as it is kept, or while the backup has not too many
// bases since, and is what it was. Files that no such moment needs are removed.
func TestRetentionKeepsEveryMoment(t *testing.T) {
	for range 3 {
		seed := rand.Uint64()
		t.Run(fmt.Sprint(seed), func(t *testing.T) { testRetention(t, rand.New(rand.NewPCG(seed, 0))) })
	}
}

func testRetention(t *testing.T, random *rand.Rand) {
	w := newWorld(t)
	start := w.now()
	keep := time.Duration(10+random.IntN(30)) * time.Second
	least := random.IntN(5) // bases
	place := &crashing{Place: w.place, random: random}
	ship := func() *shipper {
		s := newShipper(Config{Store: w.store, To: place, Log: slog.New(slog.DiscardHandler), TempDir: t.TempDir(),
			SegmentBytes: 1 + random.IntN(1000), StateInterval: time.Hour, Interval: time.Nanosecond,
			Keep: keep, KeepBases: least, Now: w.now,
			BaseInterval: time.Duration(1+random.IntN(20)) * time.Second, BaseBytes: 1 + random.Int64N(5000),
			Uptime: func() time.Duration { return w.now().Sub(start) }})
		t.Cleanup(s.stop)
		return s
	}
	catchUp := func(s *shipper) {
		opened := false
		for {
			err := error(nil)
			if !opened {
				err = s.open(t.Context())
			}
			w.mu.Lock()
			w.clock = w.clock.Add(time.Duration(random.IntN(10)) * time.Second) // while it ships
			w.mu.Unlock()
			if err == nil {
				err = s.step(t.Context())
			}
			if opened = err == nil; !opened {
				require.True(t, errors.Is(err, errCrash) || errors.Is(err, errChanged), "%v", err)
			}
			if opened && s.position() == w.Revision() && s.next == nil {
				return
			}
		}
	}
	want, at := make(map[int64]string), make(map[int64]time.Time)
	had := make(map[Moment]bool) // the moments that were in the backup
	var made []int64             // bases that were in it
	check := func(revision int64) {
		t.Helper()
		moments := []Moment{{Revision: revision}, {Time: at[revision]}}
		if random.IntN(2) == 0 {
			moments = moments[1:]
		}
		for _, m := range moments {
			b, err := Open(t.Context(), w.source(), m)
			if errors.Is(err, ErrNotCovered) && !had[m] {
				continue // in a gap
			}
			require.NoError(t, err, "%+v", m)
			require.NoError(t, b.Damage())
			require.NoError(t, b.Close())
			got, _ := w.restored(m)
			require.Equal(t, revision, got.Revision())
			require.Equal(t, want[revision], contents(t, got, 0), "revision %d", revision)
			require.NoError(t, got.Close(context.Background()))
			had[m] = true
		}
	}
	log := history.New(w.store, w.Mark)
	w.write(1, random)
	shippers := []*shipper{ship(), ship()}
	for range 25 {
		for range random.IntN(6) {
			w.write(1, random)
			commit, err := log.CommitOf(t.Context(), w.Revision())
			require.NoError(t, err)
			if !commit.At.IsZero() {
				want[w.Revision()], at[w.Revision()] = contents(t, w.Replica, 0), commit.At
			}
		}
		s := random.IntN(2)
		if random.IntN(5) == 0 {
			shippers[s].stop()
			shippers[s] = ship() // a new process
		}
		if random.IntN(8) == 0 && w.Revision() > 3 {
			_, err := w.Compact(t.Context(), auth.System, w.Revision(), true)
			require.True(t, err == nil || errors.Is(err, mvcc.ErrCompacted), "%v", err)
		}
		place.rate = []float64{0, 0.3}[random.IntN(2)]
		catchUp(shippers[s])
		m, err := shippers[s].to.manifest(t.Context())
		require.NoError(t, err)
		for _, b := range m.Bases {
			if !slices.Contains(made, b.Revision) {
				made = append(made, b.Revision)
			}
		}
		oldest := int64(math.MaxInt64)
		if n := min(least, len(made)); n > 0 {
			oldest = made[len(made)-n]
			require.GreaterOrEqual(t, len(m.Bases), n)
		}
		var kept []int64
		for revision, t := range at {
			if !t.Before(w.now().Add(-keep)) || revision > oldest { // the time of oldest may be before its StateAt
				kept = append(kept, revision)
			}
		}
		for range min(3, len(kept)) {
			check(kept[random.IntN(len(kept))])
		}
	}
	place.rate = 0
	last := shippers[0]
	catchUp(last)
	for revision, t := range at {
		if !t.Before(w.now().Add(-keep)) {
			check(revision)
		}
	}
	require.NoError(t, last.open(t.Context()))
	for last.dirty || last.removal != nil {
		require.NoError(t, last.maintain(t.Context()))
		if last.removal != nil {
			<-last.removal.done
		}
	}
	bases := last.manifest.Bases
	require.Less(t, len(bases), 25+int(keep/time.Second))
	if len(bases) > max(1, least) {
		require.Less(t, last.age()-bases[1].Age, keep, "the first base is needed")
	}
	names, err := w.place.List(t.Context())
	require.NoError(t, err)
	for _, name := range names {
		if s, ok := segmentNamed(name); ok {
			require.Greater(t, s.Last, bases[0].Revision, name)
		} else if b, ok := baseNamed(name); ok {
			require.GreaterOrEqual(t, b.Revision, bases[0].Revision, name)
		}
	}
}

// TestIdleTableIsContinued: nothing is committed after a base for longer than moments are kept. Then the newest segment
// is older than all that is kept, and its file is gone.
func TestIdleTableIsContinued(t *testing.T) {
	random := rand.New(rand.NewPCG(31, 32))
	w := newWorld(t)
	w.write(3, random)
	now := w.clock
	s := newShipper(Config{Store: w.store, To: w.place, Log: slog.New(slog.DiscardHandler), TempDir: t.TempDir(),
		StateInterval: time.Hour, Interval: time.Nanosecond, Keep: 168 * time.Hour, Now: func() time.Time { return now },
		Uptime: func() time.Duration { return now.Sub(w.clock) }})
	t.Cleanup(s.stop)
	catchUp := func() {
		t.Helper()
		for require.NoError(t, s.step(t.Context())); s.position() < w.Revision(); {
			require.NoError(t, s.step(t.Context()))
		}
	}
	require.NoError(t, s.open(t.Context()))
	catchUp()
	w.write(2, random)
	catchUp()
	now = now.Add(25 * time.Hour) // a base is due
	require.NoError(t, s.maintain(t.Context()))
	require.NotNil(t, s.next)
	<-s.next.job.done
	now = now.Add(169 * time.Hour)
	for len(s.manifest.Bases) != 1 || s.manifest.Bases[0].Revision != w.Revision() || s.dirty || s.removal != nil {
		require.NoError(t, s.maintain(t.Context()))
		if s.removal != nil {
			<-s.removal.done
		}
	}
	_, err := s.to.stored(t.Context(), s.manifest.Newest)
	require.ErrorIs(t, err, ErrDamaged, "it is missing")

	require.NoError(t, s.open(t.Context()))
	w.write(2, random)
	catchUp()
	got, _ := w.restored(Moment{})
	require.Equal(t, contents(t, w.Replica, 0), contents(t, got, 0))
}

// TestWallClockRemovesNothing: it jumps, that of the leader too, and the backup is not written for long. Bases are made
// and removed as if neither had happened.
func TestWallClockRemovesNothing(t *testing.T) {
	random := rand.New(rand.NewPCG(43, 44))
	w := newWorld(t)
	w.write(3, random)
	jump, uptime := time.Duration(0), time.Duration(0)
	var s *shipper
	process := func() {
		s = newShipper(Config{Store: w.store, To: w.place, Log: slog.New(slog.DiscardHandler), TempDir: t.TempDir(),
			Interval: time.Nanosecond, StateInterval: time.Nanosecond, Keep: 72 * time.Hour,
			Now:    func() time.Time { return time.Now().Add(uptime + jump) },
			Uptime: func() time.Duration { return uptime }})
		t.Cleanup(s.stop)
		require.NoError(t, s.open(t.Context()))
	}
	hours := func(n int) (bases []int) {
		for range n {
			uptime += time.Hour
			w.write(1, random)
			for s.position() < w.Revision() || s.next != nil {
				require.NoError(t, s.step(t.Context()))
			}
		}
		for _, b := range s.manifest.Bases {
			bases = append(bases, int(b.Age.Hours()))
		}
		return bases
	}
	process()
	require.Equal(t, []int{25, 49, 73, 97}, hours(100))
	const year = 365 * 24 * time.Hour
	for _, jump = range []time.Duration{year, -year, 2 * year, 0} {
		w.clock = w.clock.Add(jump)
		require.Equal(t, []int{25, 49, 73, 97}, hours(3))
	}
	s.stop()
	uptime += year
	process()
	require.Equal(t, []int{25, 49, 73, 97}, hours(8))
	require.Equal(t, []int{49, 73, 97, 121}, hours(1))
}

// TestNewBasesLeaveNoGap: while one is made, segments are written, one of which ends at its revision.
func TestNewBasesLeaveNoGap(t *testing.T) {
	random := rand.New(rand.NewPCG(29, 30))
	w := newWorld(t)
	w.write(5, random)
	first := w.Revision()
	s := w.shipper()
	s.Interval, s.BaseInterval = time.Nanosecond, time.Nanosecond
	require.NoError(t, s.step(t.Context()))
	for range 4 {
		w.write(3, random)
		for s.position() < w.Revision() {
			require.NoError(t, s.step(t.Context()))
		}
		s.notBefore = time.Time{}
		require.NoError(t, s.maintain(t.Context()))
		if s.next != nil {
			made := s.next.job // step may take it over
			w.write(2, random)
			require.NoError(t, s.step(t.Context()))
			<-made.done
			require.NoError(t, made.err)
		}
	}
	require.Greater(t, len(s.manifest.Bases), 1)
	spans := w.intact()
	require.Len(t, spans, 1)
	require.Equal(t, [2]int64{first, w.Revision()}, [2]int64{spans[0].First, spans[0].Last})
	log := history.New(w.store, w.Mark)
	for revision := first; revision <= s.position(); revision++ {
		commit, err := log.CommitOf(t.Context(), revision)
		require.NoError(t, err)
		for _, at := range []Moment{{Revision: revision}, {Time: commit.At}} {
			got, _ := w.restored(at)
			require.Equal(t, revision, got.Revision())
			require.Equal(t, contents(t, w.Replica, revision), contents(t, got, 0))
		}
	}
}

// TestTwoShippersDoNotMakeBasesAllTheTime: each abandons the base that it makes when the other one writes.
func TestTwoShippersDoNotMakeBasesAllTheTime(t *testing.T) {
	random := rand.New(rand.NewPCG(33, 34))
	w := newWorld(t)
	w.write(3, random)
	one := w.shipper()
	one.BaseInterval, one.Interval = time.Nanosecond, time.Nanosecond
	require.NoError(t, one.step(t.Context()))
	other := w.shipper()
	w.write(2, random)
	require.NoError(t, one.step(t.Context()))
	require.NoError(t, one.maintain(t.Context()))
	require.NotNil(t, one.next)
	require.NoError(t, other.open(t.Context()))
	w.write(2, random)
	require.NoError(t, other.step(t.Context()))
	require.NoError(t, one.open(t.Context()))
	require.NoError(t, one.maintain(t.Context()))
	require.Nil(t, one.next)
	one.notBefore = time.Time{}
	require.NoError(t, one.maintain(t.Context()))
	require.NotNil(t, one.next)
}

// TestTwoBasesOfOneRevision: two shippers make one each. The second is refused, does not replace the first, and goes
// once there is a newer base.
func TestTwoBasesOfOneRevision(t *testing.T) {
	random := rand.New(rand.NewPCG(45, 46))
	w := newWorld(t)
	id, err := age.GenerateX25519Identity() // no two encrypted files are equal
	require.NoError(t, err)
	w.recipients, w.identities = []age.Recipient{id.Recipient()}, []age.Identity{id}
	w.write(3, random)
	one, two := w.shipper(), w.shipper()
	files := func() (revisions []int64) {
		_, damages, err := Verify(t.Context(), w.source())
		require.NoError(t, err)
		require.Empty(t, damages)
		names, err := w.place.List(t.Context())
		require.NoError(t, err)
		for _, name := range names {
			if b, ok := baseNamed(name); ok {
				revisions = append(revisions, b.Revision)
			}
		}
		return revisions
	}
	require.NoError(t, one.step(t.Context()))
	require.ErrorIs(t, two.step(t.Context()), errChanged)
	first := w.Revision()
	require.Equal(t, []int64{first, first}, files())

	w.write(3, random)
	require.NoError(t, one.step(t.Context()))
	require.NoError(t, two.open(t.Context()))
	for _, s := range []*shipper{one, two} {
		s.BaseInterval = time.Nanosecond
		require.NoError(t, s.maintain(t.Context()))
		<-s.next.job.done
	}
	for one.next != nil || one.dirty || one.removal != nil {
		require.NoError(t, one.maintain(t.Context()))
		if one.removal != nil {
			<-one.removal.done
		}
	}
	require.ErrorIs(t, two.maintain(t.Context()), errChanged)
	require.Equal(t, []int64{first, w.Revision(), w.Revision()}, files())
}

func TestReasonsOfFailures(t *testing.T) {
	for reason, err := range map[string]error{
		"place": ofPlace(errSealed), "denied": fmt.Errorf("reading: %w", &fs.PathError{Err: fs.ErrPermission}),
		"damaged": ErrDamaged, "not_continued": ErrNotContinued, "database": sqlstore.ErrUnavailable,
	} {
		m := NewMetrics(nil)
		m.failed(err)
		require.Equal(t, 1.0, testutil.ToFloat64(m.failures.WithLabelValues(reason)), reason)
	}
	m := NewMetrics(nil)
	m.failed(&fs.PathError{Op: "write", Path: "/tmp/base", Err: syscall.ENOSPC})
	require.Equal(t, 1.0, testutil.ToFloat64(m.failures.WithLabelValues("place")))
}

// expiring is a place whose first base is removed when it is read.
type expiring struct{ Place }

func (e expiring) Read(ctx context.Context, name string) (io.ReadCloser, error) {
	a := archive{Place: e.Place}
	m, err := a.manifest(ctx)
	if err == nil && len(m.Bases) > 1 && name == m.Bases[0].name() {
		m.Bases = m.Bases[1:]
		err = errors.Join(a.setManifest(ctx, m), a.removeOld(ctx, m.Bases))
	}
	if err != nil {
		return nil, err
	}
	return e.Place.Read(ctx, name)
}

func TestVerifyWhileABaseIsRemoved(t *testing.T) {
	random := rand.New(rand.NewPCG(35, 36))
	w := newWorld(t)
	w.write(3, random)
	s := w.shipper()
	for range 2 {
		require.NoError(t, s.writeBase(t.Context()))
		w.write(2, random)
		require.NoError(t, s.step(t.Context()))
	}
	s.stop()
	w.place = expiring{w.place} // no directory: files are copied
	spans := w.intact()
	require.Len(t, spans, 1)
	require.Equal(t, w.Revision(), spans[0].Last)
}

// TestFilesOfOthersStay, also those whose names begin like ours.
func TestFilesOfOthersStay(t *testing.T) {
	w := newWorld(t)
	w.write(3, rand.New(rand.NewPCG(37, 38)))
	s := w.shipper()
	require.NoError(t, s.writeBase(t.Context()))
	var kept []string
	for _, name := range []string{"log-2-1-27.txt", "log-2-3-restore-drill.seg", "base-1-1.db",
		"base-00000000000000000001-0000000000000001.db.before",
		"log-00000000000000000009-00000000000000000002-0123456789abcdef.seg"} {
		require.NoError(t, w.place.Create(t.Context(), name, put(nil)))
		kept = append(kept, name)
	}
	old := segment{First: 1, Last: 1, Hash: hashOf(nil)}.name()
	require.NoError(t, w.place.Create(t.Context(), old, put(nil)))
	require.NoError(t, s.to.removeOld(t.Context(), s.manifest.Bases))
	names, err := w.place.List(t.Context())
	require.NoError(t, err)
	require.Subset(t, names, kept)
	require.NotContains(t, names, old)
}

// TestAnotherBaseIsRefused: the log does not continue it.
func TestAnotherBaseIsRefused(t *testing.T) {
	onPlaces(t, func(t *testing.T, p Place) {
		random := rand.New(rand.NewPCG(39, 40))
		w := newWorld(t)
		w.place = p
		w.write(3, random)
		s := w.shipper()
		for range 2 {
			require.NoError(t, s.writeBase(t.Context()))
			w.write(4, random)
			require.NoError(t, s.step(t.Context()))
		}
		older, err := s.to.read(t.Context(), s.manifest.Bases[0].name())
		require.NoError(t, err)
		require.NoError(t, p.Create(t.Context(), s.manifest.Bases[1].name(), put(older)))
		b := w.open(Moment{})
		_, err = b.Load(t.Context(), memstore.New(), snapshot.LoadOptions{})
		require.ErrorIs(t, err, ErrDamaged)
		require.NoError(t, b.Close())
		spans, damages, err := Verify(t.Context(), w.source())
		require.NoError(t, err)
		require.Len(t, damages, 1)
		require.Len(t, spans, 1)
		require.Equal(t, s.manifest.Bases[0].Revision, spans[0].First)
	})
}

// TestNothingClearInAnEncryptedPlace: the file of a base is not encrypted while it is made.
func TestNothingClearInAnEncryptedPlace(t *testing.T) {
	w := newWorld(t)
	require.Equal(t, w.dir, w.shipper().tempDir())
	identity, err := age.GenerateX25519Identity()
	require.NoError(t, err)
	s := newShipper(Config{To: w.place, Recipients: []age.Recipient{identity.Recipient()}})
	require.Equal(t, os.TempDir(), s.tempDir())
}
