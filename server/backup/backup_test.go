package backup

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"filippo.io/age"
	"github.com/minio/minio-go/v7"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.etcd.io/etcd/api/v3/authpb"
	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

func TestMain(m *testing.M) {
	minio.DefaultRetryUnit = time.Millisecond
	eventually.NoLeaks(m)
}

// world is a store that is served, whose commits are a second apart.
type world struct {
	t     *testing.T
	store sqlstore.Store
	*replica.Replica
	mu    sync.Mutex
	clock time.Time // guarded by mu while a replica serves
	dir   string
	place Place

	recipients []age.Recipient
	identities []age.Identity
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, store: memstore.New(), clock: time.Now().Add(-time.Hour).Truncate(time.Second), dir: t.TempDir()}
	w.place = directory(w.dir)
	t.Cleanup(func() { require.NoError(t, w.store.Close()) })
	w.Replica = w.serve(w.store)
	return w
}

func (w *world) serve(store sqlstore.Store) *replica.Replica {
	cfg := replica.DefaultConfig()
	cfg.Exclusive, cfg.Logger, cfg.RequestTimeout = true, slog.New(slog.DiscardHandler), eventually.Deadline
	cfg.CommitClock = func() time.Time {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.clock = w.clock.Add(time.Second)
		return w.clock
	}
	r, err := replica.OpenLeader(w.t.Context(), store, cfg)
	require.NoError(w.t, err)
	w.t.Cleanup(func() { require.NoError(w.t, r.Close(context.Background())) })
	return r
}

// now returns the time of the newest commit.
func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) source() Source {
	return Source{Place: w.place, Identities: w.identities, TempDir: w.t.TempDir()}
}

// write makes n transactions of random puts and deletes.
func (w *world) write(n int, random *rand.Rand) {
	for range n {
		txn := &mvcc.Txn{}
		for _, k := range random.Perm(5)[:1+random.IntN(2)] {
			key := fmt.Appendf(nil, "k%d", k)
			if random.IntN(4) == 0 {
				txn.Then = append(txn.Then, mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: key}}})
				continue
			}
			txn.Then = append(txn.Then, mvcc.Op{Put: &mvcc.PutRequest{Key: key, Value: make([]byte, random.IntN(300))}})
		}
		_, err := w.Txn(w.t.Context(), auth.System, txn, true)
		require.NoError(w.t, err)
	}
}

// ship ships until the backup has the newest revision.
func (w *world) ship() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	newest := w.Revision()
	err := Ship(ctx, Config{Store: w.store, To: w.place, Recipients: w.recipients, Log: slog.New(slog.DiscardHandler),
		SegmentBytes: 500, Interval: time.Millisecond, StateInterval: 100 * time.Millisecond, Now: w.now,
		Shipped: func(revision int64) {
			if revision >= newest {
				cancel()
			}
		}})
	require.NoError(w.t, err)
}

// shipper returns one whose steps the test calls.
func (w *world) shipper() *shipper {
	s := newShipper(Config{Store: w.store, To: w.place, Recipients: w.recipients, Log: slog.New(slog.DiscardHandler),
		Interval: time.Nanosecond, SegmentBytes: 1 << 20, StateInterval: time.Hour, Now: w.now, Metrics: NewMetrics(nil)})
	w.t.Cleanup(s.stop)
	require.NoError(w.t, s.open(w.t.Context()))
	return s
}

// replaceHistory puts another history into the table, as a failover that lost commits does.
func (w *world) replaceHistory(writes int, random *rand.Rand) {
	identity, err := w.store.Get(w.t.Context(), coder.IdentityKey())
	require.NoError(w.t, err)
	lost := memstore.New()
	w.t.Cleanup(func() { require.NoError(w.t, lost.Close()) })
	batch := lost.BeginBatchWrite()
	batch.Put(coder.IdentityKey(), identity)
	require.NoError(w.t, batch.Commit(w.t.Context()))
	w.store = lost
	w.Replica = w.serve(lost)
	w.write(writes, random)
}

func hash(t *testing.T, r *replica.Replica, revision int64) uint32 {
	t.Helper()
	h, err := r.Exporter.HashKV(t.Context(), auth.System, revision, func(rec *coder.Record) ([]byte, error) {
		return fmt.Appendf(nil, "%+v", *rec), nil
	})
	require.NoError(t, err)
	return h.Hash
}

func (w *world) open(at Moment) *Backup {
	w.t.Helper()
	b, err := Open(w.t.Context(), w.source(), at)
	require.NoError(w.t, err)
	return b
}

// intact returns the spans of a backup without damage.
func (w *world) intact() []Span {
	w.t.Helper()
	spans, damages, err := Verify(w.t.Context(), w.source())
	require.NoError(w.t, err)
	require.Empty(w.t, damages)
	return spans
}

// restored returns what a backup was restored to.
func (w *world) restored(at Moment) (*replica.Replica, sqlstore.Store) {
	w.t.Helper()
	b := w.open(at)
	defer func() { require.NoError(w.t, b.Close()) }()
	store := memstore.New()
	w.t.Cleanup(func() { require.NoError(w.t, store.Close()) })
	_, err := b.Load(w.t.Context(), store, snapshot.LoadOptions{})
	require.NoError(w.t, err)
	return w.serve(store), store
}

// TestRestoreAtEveryRevision compares the hash of each with that of the store, and the times of commits. The shipper
// starts several times.
func TestRestoreAtEveryRevision(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	w.write(5, random)
	first := w.Revision()
	for range 4 {
		w.ship()
		w.write(10, random)
	}
	w.ship()
	log := history.New(w.store, w.Mark)
	for revision := first; revision < w.Revision(); revision++ { // no time is after the last one
		commit, err := log.CommitOf(t.Context(), revision)
		require.NoError(t, err)
		for _, at := range []Moment{{Revision: revision}, {Time: commit.At}, {Time: commit.At.Add(999 * time.Millisecond)}} {
			t.Run("", func(t *testing.T) { // closes what it opened
				defer func(outer *testing.T) { w.t = outer }(w.t)
				w.t = t
				got, store := w.restored(at)
				require.Equal(t, revision, got.Revision(), "%+v", at)
				require.Equal(t, hash(t, w.Replica, revision), hash(t, got, 0), "revision %d", revision)
				asked := at.Time
				if asked.IsZero() {
					asked = commit.At
				}
				found, err := history.New(store, got.Mark).RevisionAt(t.Context(), asked, revision)
				require.NoError(t, err, "%+v", at)
				require.Equal(t, revision, found, "%+v", at)
				if revision > first {
					again, err := history.New(store, got.Mark).CommitOf(t.Context(), revision)
					require.NoError(t, err)
					require.True(t, commit.At.Equal(again.At), "revision %d: %s and %s", revision, commit.At, again.At)
				}
			})
		}
	}
	for _, at := range []Moment{
		{Revision: first - 1}, {Revision: w.Revision() + 1}, {Time: time.Now().Add(-2 * time.Hour)},
	} {
		_, err := Open(t.Context(), w.source(), at)
		require.ErrorIs(t, err, ErrNotCovered, "%+v", at)
	}
}

// TestGapIsClosedByABase: while the shipper did not run, the history that it needs was compacted. Moments before the
// gap, and after it, can be restored.
func TestGapIsClosedByABase(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	w := newWorld(t)
	w.write(5, random)
	w.ship()
	w.write(5, random)
	w.ship()
	before := w.Revision()
	want := hash(t, w.Replica, before)
	w.mu.Lock()
	w.clock = time.Now()
	w.mu.Unlock()
	w.write(10, random)
	_, err := w.Compact(t.Context(), auth.System, w.Revision()-2, true)
	require.NoError(t, err)
	w.ship()
	afterGap := w.Revision()
	w.write(5, random)
	w.ship()
	got, _ := w.restored(Moment{Revision: before})
	require.Equal(t, want, hash(t, got, 0))
	for revision := afterGap; revision <= w.Revision(); revision++ {
		got, _ := w.restored(Moment{Revision: revision})
		require.Equal(t, hash(t, w.Replica, revision), hash(t, got, 0), "revision %d", revision)
	}
	spans := w.intact()
	require.Len(t, spans, 2)
	require.Equal(t, [3]int64{before, afterGap, w.Revision()}, [3]int64{spans[0].Last, spans[1].First, spans[1].Last})
	log := history.New(w.store, w.Mark)
	last, err := log.CommitOf(t.Context(), afterGap)
	require.NoError(t, err)
	for _, at := range []Moment{{Revision: before + 1}, {Time: last.At.Add(-time.Second)},
		{Time: last.At.Add(-5 * time.Second)}} {
		_, err = Open(t.Context(), w.source(), at)
		require.ErrorIs(t, err, ErrNotCovered, "%+v is in the gap", at)
	}
}

// TestGapInASegmentIsNotCovered: sqlbrain recover raised the revision between two commits that are read together.
func TestGapInASegmentIsNotCovered(t *testing.T) {
	random := rand.New(rand.NewPCG(45, 46))
	w := newWorld(t)
	w.write(3, random)
	w.ship()
	w.write(3, random)
	before := w.Revision()
	require.NoError(t, w.Close(t.Context()))
	found, err := repair.Examine(t.Context(), w.store)
	require.NoError(t, err)
	next, err := found.Plan(repair.DefaultBump, false)
	require.NoError(t, err)
	require.NoError(t, found.Recover(t.Context(), w.store, next))
	inGap := w.clock.Add(time.Second)
	w.Replica = w.serve(w.store)
	w.write(2, random)
	w.ship()
	require.Equal(t, before, w.intact()[0].Last)
	_, err = Open(t.Context(), w.source(), Moment{Time: inGap})
	require.ErrorIs(t, err, ErrNotCovered)
}

// TestTimesAfterTheEndAreRefused: the shipper may have stopped long ago.
func TestTimesAfterTheEndAreRefused(t *testing.T) {
	w := newWorld(t)
	w.write(3, rand.New(rand.NewPCG(9, 10)))
	w.ship()
	s := w.shipper()
	refused := func(at time.Time) {
		t.Helper()
		_, err := Open(t.Context(), w.source(), Moment{Time: at})
		require.ErrorIs(t, err, ErrNotCovered)
	}
	refused(time.Now())
	refused(time.Now().Add(100 * time.Hour))

	// While nothing is written, the manifest says so.
	m, err := s.to.manifest(t.Context())
	require.NoError(t, err)
	m.Until = m.Until.Add(-time.Minute)
	require.NoError(t, s.to.setManifest(t.Context(), m))
	idle := time.Now().Add(-30 * time.Second)
	refused(idle)
	require.NoError(t, s.open(t.Context()))
	s.StateInterval, s.Now = 10*time.Second, time.Now
	require.NoError(t, s.step(t.Context()))
	got, _ := w.restored(Moment{Time: idle})
	require.Equal(t, w.Revision(), got.Revision())
	refused(time.Now())
	spans := w.intact()
	require.Len(t, spans, 1)
	require.True(t, spans[0].Until.Equal(s.manifest.Until), "%v is not %v", spans[0].Until, s.manifest.Until)
}

// TestTwoShippers: both write the same revisions with other bytes, and publish in turns.
func TestTwoShippers(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	w := newWorld(t)
	w.write(3, random)
	w.ship()
	one, two := w.shipper(), w.shipper()
	two.looked = time.Now() // its segments have no state rows
	for range 4 {
		w.write(2, random)
		for _, s := range []*shipper{one, two, one} {
			err := s.step(t.Context())
			for errors.Is(err, errChanged) { // as Ship does
				require.NoError(t, s.open(t.Context()))
				err = s.step(t.Context())
			}
			require.NoError(t, err)
			got, _ := w.restored(Moment{})
			require.Equal(t, hash(t, w.Replica, 0), hash(t, got, 0))
		}
	}
	w.write(1, random)
	require.NoError(t, one.open(t.Context()))
	require.NoError(t, one.step(t.Context()))
	var log strings.Builder
	two.Log = slog.New(slog.NewTextHandler(&log, nil))
	two.finish(t.Context())
	require.Empty(t, log.String(), "the other one has it")
}

// TestTwoShippersWarnOnce in minutes, however often they take turns.
func TestTwoShippersWarnOnce(t *testing.T) {
	w := newWorld(t)
	w.write(3, rand.New(rand.NewPCG(41, 42)))
	w.ship()
	ctx, cancel := context.WithCancel(t.Context())
	var log strings.Builder
	var shippers errgroup.Group
	cfg := Config{Store: w.store, To: w.place, Log: slog.New(slog.NewJSONHandler(&log, nil)), Metrics: NewMetrics(nil),
		Interval: time.Millisecond, StateInterval: time.Nanosecond}
	shippers.Go(func() error { return Ship(ctx, cfg) })
	other := cfg
	other.Log, other.Metrics = slog.New(slog.DiscardHandler), NewMetrics(nil)
	shippers.Go(func() error { return Ship(ctx, other) })
	turns := func() float64 { return testutil.ToFloat64(cfg.Metrics.failures.WithLabelValues("place")) }
	eventually.True(t, "they take turns", func() bool { return turns() >= 10 })
	cancel()
	require.NoError(t, shippers.Wait())
	require.Less(t, strings.Count(log.String(), "taking turns"), 5)
	require.Contains(t, log.String(), "taking turns")
	require.Contains(t, log.String(), fmt.Sprintf(`"to":"%s"`, w.place))
	require.NotContains(t, log.String(), "cannot continue")
}

// TestDamageIsFound in each file: a missing one, a shorter one, one with another bit, one in the place of another.
// Moments before the damage can be restored.
func TestDamageIsFound(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	w := newWorld(t)
	w.write(3, random)
	w.ship()
	base := w.Revision()
	w.write(20, random)
	w.ship()
	_, err := Open(t.Context(), w.source(), Moment{})
	require.NoError(t, err)
	names, err := filepath.Glob(filepath.Join(w.dir, "log-*"))
	require.NoError(t, err)
	require.Greater(t, len(names), 2)
	log := history.New(w.store, w.Mark)
	for i, name := range names {
		s, ok := segmentNamed(filepath.Base(name))
		require.True(t, ok)
		content, err := os.ReadFile(name)
		require.NoError(t, err)
		other, err := os.ReadFile(names[(i+1)%len(names)])
		require.NoError(t, err)
		flipped := append([]byte(nil), content...)
		flipped[random.IntN(len(flipped))] ^= 1 << random.IntN(8)
		for what, damaged := range map[string][]byte{"missing": nil, "shorter": content[:len(content)-1], "flipped": flipped,
			"another": other, "empty": {}} {
			if require.NoError(t, os.Remove(name)); damaged != nil {
				require.NoError(t, os.WriteFile(name, damaged, 0o600))
			}
			damagedAt, err := log.CommitOf(t.Context(), s.First)
			require.NoError(t, err)
			for _, at := range []Moment{{}, {Revision: s.First}, {Time: damagedAt.At},
				{Time: damagedAt.At.Add(-time.Second)}} {
				_, err := Open(t.Context(), w.source(), at)
				require.ErrorIs(t, err, ErrDamaged, "%s: %s: %+v", name, what, at)
			}
			for _, revision := range []int64{base, max(base, s.First-2), s.First - 1} {
				commit, err := log.CommitOf(t.Context(), revision)
				require.NoError(t, err)
				for _, at := range []Moment{{Revision: revision}, {Time: commit.At}} {
					if at.Revision == 0 && revision == s.First-1 {
						continue // the damaged segment might have another commit of that time
					}
					b, err := Open(t.Context(), w.source(), at)
					require.NoError(t, err, "%s: %s: revision %d", name, what, revision)
					require.ErrorIs(t, b.Damage(), ErrDamaged)
					newest, _ := b.Newest()
					require.Equal(t, revision, newest)
				}
			}
			spans, damages, err := Verify(t.Context(), w.source())
			require.NoError(t, err)
			require.Len(t, damages, 1)
			require.ErrorContains(t, damages[0], filepath.Base(name))
			require.Len(t, spans, 1)
			require.Equal(t, [2]int64{base, s.First - 1}, [2]int64{spans[0].First, spans[0].Last})
			require.Zero(t, spans[0].Until)
			require.NoError(t, os.WriteFile(name, content, 0o600))
		}
	}
	b, err := Open(t.Context(), w.source(), Moment{})
	require.NoError(t, err)
	require.NoError(t, b.Damage())

	file := filepath.Join(w.dir, b.base.name())
	content, err := os.ReadFile(file)
	require.NoError(t, err)
	content[len(content)/2] ^= 1
	require.NoError(t, os.WriteFile(file, content, 0o600))
	_, err = b.Load(t.Context(), memstore.New(), snapshot.LoadOptions{})
	require.ErrorIs(t, err, ErrDamaged)
	spans, damages, err := Verify(t.Context(), w.source())
	require.NoError(t, err)
	require.Empty(t, spans)
	require.Len(t, damages, 1)

	manifest := filepath.Join(w.dir, manifestName)
	for _, content := range []string{"{", `{"format": 2, "newest": {"first": 2, "last": 9}}`} {
		require.NoError(t, os.WriteFile(manifest, []byte(content), 0o600))
		_, err = Open(t.Context(), w.source(), Moment{})
		require.ErrorIs(t, err, ErrDamaged)
		require.ErrorIs(t, w.refused(w.store), ErrDamaged)
	}
	require.NoError(t, os.Remove(manifest))
	require.ErrorIs(t, w.refused(w.store), ErrDamaged, "the files would be stranded")
}

// refused returns why the backup is not continued from a store.
func (w *world) refused(store sqlstore.Store) error {
	ctx, cancel := context.WithTimeout(w.t.Context(), eventually.Deadline)
	defer cancel()
	return Ship(ctx, Config{Store: store, To: w.place, Log: slog.New(slog.DiscardHandler)})
}

// TestAnotherHistoryIsRefused: of another cluster, and of one that lost commits; while the shipper runs, too, and if
// the newest file is a base.
func TestAnotherHistoryIsRefused(t *testing.T) {
	for _, segments := range []bool{true, false} {
		for _, writes := range []int{2, 20} { // behind the backup, and past it with other content
			random := rand.New(rand.NewPCG(5, 6))
			w := newWorld(t)
			w.write(5, random)
			w.ship()
			if segments {
				w.write(5, random)
				w.ship()
			}
			running := w.shipper()
			other := newWorld(t)
			other.write(20, random)
			require.ErrorIs(t, w.refused(other.store), ErrNotContinued)
			w.replaceHistory(writes, random)
			require.ErrorIs(t, w.refused(w.store), ErrNotContinued)
			running.Store, running.mark = w.store, compact.NewMark(w.store)
			require.ErrorIs(t, running.step(t.Context()), ErrNotContinued)
		}
	}
}

// TestReplacedTableGivesNoBase: a restore began, or has ended, while a base was made.
func TestReplacedTableGivesNoBase(t *testing.T) {
	w := newWorld(t)
	w.write(5, rand.New(rand.NewPCG(11, 12)))
	s := w.shipper()
	put := func(key, value []byte) {
		batch := w.store.BeginBatchWrite()
		batch.Put(key, value)
		require.NoError(t, batch.Commit(t.Context()))
	}
	job := coder.NewJob(coder.JobRestore)
	put(coder.JobKey(), coder.EncodeJob(job))
	require.ErrorIs(t, s.writeBase(t.Context()), repair.ErrRestoring)
	job.Ended = true
	put(coder.JobKey(), coder.EncodeJob(job))
	put(coder.IdentityKey(), []byte("another"))
	require.ErrorIs(t, s.writeBase(t.Context()), ErrNotContinued)
}

// TestLostCommitsGiveNoBase: a failover lost one while a base was made.
func TestLostCommitsGiveNoBase(t *testing.T) {
	w := newWorld(t)
	w.write(5, rand.New(rand.NewPCG(47, 48)))
	s := w.shipper()
	versions, _ := coder.VersionBounds([]byte{0}, []byte{0})
	s.Store = &reads{Store: w.store, after: func(x sqlstore.Range) {
		if bytes.Equal(x.Start, versions) {
			batch := w.store.BeginBatchWrite()
			batch.Del(coder.EncodeLogKey(w.Revision(), 1))
			require.NoError(t, batch.Commit(t.Context()))
		}
	}}
	require.ErrorContains(t, s.writeBase(t.Context()), "lost commits")
	require.Zero(t, s.position())
}

// reads counts statements that read several rows by their keys, and calls after at the end of each iteration.
type reads struct {
	sqlstore.Store
	gets  int
	after func(r sqlstore.Range)
}

func (r *reads) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	r.gets++
	return r.Store.MultiGet(ctx, keys)
}

func (r *reads) Iter(ctx context.Context, x sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		for row, err := range r.Store.Iter(ctx, x) {
			if !yield(row, err) {
				return
			}
		}
		if r.after != nil {
			r.after(x)
		}
	}
}

// TestVersionsAreReadTogether: those of many commits in few statements.
func TestVersionsAreReadTogether(t *testing.T) {
	w := newWorld(t)
	w.write(1, rand.New(rand.NewPCG(13, 14)))
	w.ship()
	for range 200 {
		_, err := w.Txn(t.Context(), auth.System, &mvcc.Txn{Then: []mvcc.Op{
			{Put: &mvcc.PutRequest{Key: []byte("k"), Value: []byte("v")}}}}, true)
		require.NoError(t, err)
	}
	counted := &reads{Store: w.store}
	s := w.shipper()
	s.Store = counted
	require.NoError(t, s.step(t.Context()))
	require.Equal(t, w.Revision(), s.position())
	require.Less(t, counted.gets, 12)
	got, _ := w.restored(Moment{})
	require.Equal(t, hash(t, w.Replica, 0), hash(t, got, 0))
}

// TestUsersAreOfOneVersion: a user is added, and its role, while the rows are read. The password of each is checked.
func TestUsersAreOfOneVersion(t *testing.T) {
	w := newWorld(t)
	random := rand.New(rand.NewPCG(15, 16))
	w.write(3, random)
	w.ship()
	w.write(3, random)
	changed := false
	lo, _ := coder.AuthBounds(coder.AuthUser)
	store := &reads{Store: w.store, after: func(x sqlstore.Range) {
		if changed || !bytes.Equal(x.Start, lo) {
			return
		}
		changed = true
		batch := w.store.BeginBatchWrite()
		for kind, content := range map[coder.AuthKind]proto.Message{
			coder.AuthUser: &authpb.User{Name: []byte("n"), Password: []byte("hash"), Roles: []string{"n"}},
			coder.AuthRole: &authpb.Role{Name: []byte("n")},
		} {
			raw, err := proto.Marshal(content)
			require.NoError(t, err)
			batch.Put(coder.EncodeAuthKey(kind, "n"), coder.EncodeAuthValue(raw))
		}
		batch.Put(coder.AuthSettingsKey(), coder.EncodeAuthSettings(coder.AuthSettings{Version: 2}))
		require.NoError(t, batch.Commit(t.Context()))
	}}
	batch := w.store.BeginBatchWrite()
	batch.Put(coder.AuthSettingsKey(), coder.EncodeAuthSettings(coder.AuthSettings{Version: 1}))
	require.NoError(t, batch.Commit(t.Context()))
	s := w.shipper()
	s.Store = store
	require.NoError(t, s.step(t.Context()))
	require.True(t, changed)
	b, err := Open(t.Context(), w.source(), Moment{})
	require.NoError(t, err)
	_, users := b.State()
	require.Len(t, users.Users, 1)
	require.Len(t, users.Roles, 1)

	refused := errors.New("too costly")
	_, err = b.Load(t.Context(), memstore.New(), snapshot.LoadOptions{CheckPassword: func(hash []byte) error {
		require.Equal(t, "hash", string(hash))
		return refused
	}})
	require.ErrorIs(t, err, refused)
}

// TestUserThatNoRestoreTakesIsFound in the log, and in the base that begins another backup.
func TestUserThatNoRestoreTakesIsFound(t *testing.T) {
	w := newWorld(t)
	random := rand.New(rand.NewPCG(17, 18))
	w.write(3, random)
	w.ship()
	w.intact()
	w.write(3, random)
	batch := w.store.BeginBatchWrite()
	batch.Put(coder.EncodeAuthKey(coder.AuthUser, "n"), coder.EncodeAuthValue([]byte("?")))
	batch.Put(coder.AuthSettingsKey(), coder.EncodeAuthSettings(coder.AuthSettings{Version: 1}))
	require.NoError(t, batch.Commit(t.Context()))
	require.NoError(t, w.shipper().step(t.Context()))
	_, err := w.open(Moment{}).Load(t.Context(), memstore.New(), snapshot.LoadOptions{})
	require.ErrorContains(t, err, `the user "n"`)
	spans, damages, err := Verify(t.Context(), w.source())
	require.NoError(t, err)
	require.Empty(t, spans)
	require.Len(t, damages, 1)
	require.ErrorContains(t, damages[0], `the user "n"`)

	w.place = directory(t.TempDir())
	require.ErrorContains(t, w.shipper().step(t.Context()), `the user "n"`)
}

// TestUsersOfAnIdleTable are in the backup though no key is written, on a base and on a segment; and as they were at
// each time.
func TestUsersOfAnIdleTable(t *testing.T) {
	onPlaces(t, func(t *testing.T, p Place) {
		w := newWorld(t)
		w.place = p
		random := rand.New(rand.NewPCG(41, 42))
		w.write(3, random)
		s := w.shipper()
		s.StateInterval = time.Minute
		now := w.clock.Add(time.Hour)
		s.Now = func() time.Time { return now }
		require.NoError(t, s.step(t.Context()))
		change := func(version int64) {
			batch := w.store.BeginBatchWrite()
			name := fmt.Sprint("n", version)
			raw, err := proto.Marshal(&authpb.User{Name: []byte(name), Password: []byte("hash")})
			require.NoError(t, err)
			batch.Put(coder.EncodeAuthKey(coder.AuthUser, name), coder.EncodeAuthValue(raw))
			batch.Put(coder.AuthSettingsKey(), coder.EncodeAuthSettings(coder.AuthSettings{Version: version, Enabled: true}))
			require.NoError(t, batch.Commit(t.Context()))
		}
		users := func(at Moment) int {
			t.Helper()
			b := w.open(at)
			_, change := b.State()
			require.NoError(t, b.Damage())
			if change == nil {
				return 0
			}
			require.True(t, change.Enabled || len(change.Users) == 0)
			return len(change.Users)
		}
		look := func() time.Time {
			t.Helper()
			now = now.Add(time.Hour)
			before := s.manifest.Newest
			require.NoError(t, s.step(t.Context()))
			newest := s.manifest.Newest
			require.NoError(t, s.step(t.Context()))
			require.Equal(t, newest, s.manifest.Newest, "nothing changed")
			if newest == before {
				return time.Time{}
			}
			return now
		}
		require.Zero(t, look())
		require.Zero(t, users(Moment{}))
		change(1)
		first := look()
		require.Equal(t, 1, users(Moment{}))
		require.Zero(t, users(Moment{Time: first.Add(-commitTime)}))
		change(2)
		second := look()
		require.Equal(t, 2, users(Moment{}))
		require.Equal(t, 1, users(Moment{Time: second.Add(-commitTime)}))
		require.Equal(t, 1, users(Moment{Time: first}))
		require.Zero(t, users(Moment{Time: first.Add(-time.Second)}))
		w.mu.Lock()
		w.clock = now
		w.mu.Unlock()
		change(3)
		w.write(3, random)
		require.NoError(t, s.step(t.Context()))
		require.Zero(t, look(), "the segment has them")
		require.Equal(t, 3, users(Moment{}))
		require.Equal(t, 3, users(Moment{Revision: w.Revision()}))
		require.Equal(t, 2, users(Moment{Time: second}))
		require.Equal(t, 1, users(Moment{Time: second.Add(-time.Second)}))
		require.NoError(t, s.open(t.Context()))
		require.NoError(t, s.to.removeOld(t.Context(), s.manifest.Bases))
		got, _ := w.restored(Moment{})
		require.Equal(t, contents(t, w.Replica, 0), contents(t, got, 0))
		spans := w.intact()
		require.Len(t, spans, 1)
		require.Equal(t, w.Revision(), spans[0].Last)
	})
}

// TestUsersAreNotLaterThanATime: while no shipper ran, they changed after the last commit. The next one reads them with
// a segment, or with a base that continues the log, or that begins anew. Times before that have the state before, or
// are refused if there is none.
func TestUsersAreNotLaterThanATime(t *testing.T) {
	for _, next := range []string{"segment", "base", "gap"} {
		t.Run(next, func(t *testing.T) {
			w := newWorld(t)
			clock := w.clock
			tick := func() time.Time {
				clock = clock.Add(time.Hour)
				w.mu.Lock()
				defer w.mu.Unlock()
				w.clock = clock
				return clock
			}
			turn := func(version int64, enabled bool) {
				batch := w.store.BeginBatchWrite()
				batch.Put(coder.AuthSettingsKey(), coder.EncodeAuthSettings(coder.AuthSettings{Version: version, Enabled: enabled}))
				require.NoError(t, batch.Commit(t.Context()))
			}
			enabled := func(at time.Time) bool {
				t.Helper()
				l, err := w.open(Moment{Time: at}).Load(t.Context(), memstore.New(), snapshot.LoadOptions{})
				require.NoError(t, err)
				return l.AuthEnabled
			}
			refused := func(at time.Time) {
				t.Helper()
				_, err := Open(t.Context(), w.source(), Moment{Time: at})
				require.ErrorIs(t, err, ErrNotCovered)
			}
			put := func() {
				_, err := w.Txn(t.Context(), auth.System, &mvcc.Txn{Then: []mvcc.Op{
					{Put: &mvcc.PutRequest{Key: []byte("k")}}}}, true)
				require.NoError(t, err)
			}
			put()
			off := tick()
			turn(1, true)
			tick()
			s := w.shipper()
			require.NoError(t, s.step(t.Context()))
			refused(off)
			put()
			require.NoError(t, s.step(t.Context()))
			committed := w.now()
			require.True(t, enabled(committed))

			for range 3 {
				put()
			}
			on := tick()
			turn(2, false)
			tick()
			s = w.shipper()
			switch next {
			case "base":
				s.BaseInterval = time.Nanosecond
				require.NoError(t, s.maintain(t.Context()))
				<-s.next.job.done
			case "gap":
				_, err := w.Compact(t.Context(), auth.System, w.Revision()-1, true)
				require.NoError(t, err)
			}
			require.NoError(t, s.step(t.Context()))
			require.NoError(t, s.step(t.Context()))
			require.Equal(t, map[string]int{"segment": 1, "base": 2, "gap": 2}[next], len(s.manifest.Bases))
			read := w.now()
			put()
			require.NoError(t, s.step(t.Context()))
			require.True(t, enabled(committed))
			if next == "gap" {
				refused(on)
				refused(read.Add(-time.Second))
			} else {
				require.True(t, enabled(on))
				require.True(t, enabled(read.Add(-time.Second)))
				require.Equal(t, s.position()-1, w.open(Moment{Time: on}).newest)
			}
			require.False(t, enabled(read))
			require.False(t, enabled(w.now()))
			b := w.open(Moment{Revision: s.position() - 1})
			l, err := b.Load(t.Context(), memstore.New(), snapshot.LoadOptions{})
			require.NoError(t, err)
			require.False(t, l.AuthEnabled, "no commit followed until it was read")
			spans := w.intact()
			require.Equal(t, read.Equal(spans[len(spans)-1].From), next == "gap")
		})
	}
}

// TestKeysExpireAfterARestore: a lease that was granted since the last state, and one that had ended when the shipper
// read the log, are restored, because keys have them. One that was being revoked then has its keys.
func TestKeysExpireAfterARestore(t *testing.T) {
	w := newWorld(t)
	w.write(3, rand.New(rand.NewPCG(17, 18)))
	w.ship()
	lessor, err := w.Lessor()
	require.NoError(t, err)
	put := func(id int64) int64 {
		t.Helper()
		_, err := lessor.Grant(t.Context(), auth.System, id, 1000)
		require.NoError(t, err)
		_, err = w.Txn(t.Context(), auth.System, &mvcc.Txn{Then: []mvcc.Op{
			{Put: &mvcc.PutRequest{Key: fmt.Append(nil, id), Lease: id}}}}, true)
		require.NoError(t, err)
		return w.Revision()
	}
	lease := func(at, id int64) coder.Lease {
		t.Helper()
		_, store := w.restored(Moment{Revision: at})
		raw, err := store.Get(t.Context(), coder.EncodeLeaseKey(id))
		require.NoError(t, err)
		l, err := coder.DecodeLease(coder.EncodeLeaseKey(id), raw)
		require.NoError(t, err)
		return l
	}
	s := w.shipper()
	s.looked = time.Now()
	granted := put(77)
	require.NoError(t, s.step(t.Context()))
	require.EqualValues(t, 1000, lease(granted, 77).TTL)

	ended := put(78)
	_, err = lessor.Revoke(t.Context(), auth.System, 77)
	require.NoError(t, err)
	_, err = lessor.Revoke(t.Context(), auth.System, 78)
	require.NoError(t, err)
	s.looked = time.Time{}
	require.NoError(t, s.step(t.Context()))
	require.EqualValues(t, 60, lease(ended, 78).TTL)
	require.EqualValues(t, 1000, lease(ended, 77).TTL)
	_, store := w.restored(Moment{})
	for _, id := range []int64{77, 78} {
		_, err = store.Get(t.Context(), coder.EncodeLeaseKey(id))
		require.ErrorIs(t, err, sqlstore.ErrKeyNotFound, "no key has it")
	}

	held := put(79)
	batch := w.store.BeginBatchWrite() // its revocation begins after the log was read
	batch.Put(coder.EncodeLeaseKey(79), coder.EncodeLease(coder.Lease{ID: 79, TTL: 1000, Revoking: true}))
	require.NoError(t, batch.Commit(t.Context()))
	s.looked = time.Time{}
	require.NoError(t, s.step(t.Context()))
	require.Equal(t, coder.Lease{ID: 79, TTL: 1000}, lease(held, 79))
}

// TestBasesThatNothingContinuesPause: compaction passes each base while it is made.
func TestBasesThatNothingContinuesPause(t *testing.T) {
	w := newWorld(t)
	place := &flaky{Place: w.place}
	w.place = place
	random := rand.New(rand.NewPCG(19, 20))
	w.write(5, random)
	w.ship()
	s := w.shipper()
	require.NoError(t, s.writeBase(t.Context()))
	s.took = time.Hour
	w.write(10, random)
	_, err := w.Compact(t.Context(), auth.System, w.Revision()-1, true)
	require.NoError(t, err)
	before := len(s.manifest.Bases)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, s.step(ctx), context.DeadlineExceeded)
	require.Len(t, s.manifest.Bases, before)
	s.took = 0
	full := errors.New("the disk is full")
	place.fail(full)
	require.ErrorIs(t, s.step(t.Context()), full)
	require.WithinRange(t, s.again, time.Now().Add(-time.Hour), time.Now().Add(time.Hour))
	require.ErrorIs(t, s.step(t.Context()), full)
	require.False(t, time.Now().Before(s.notBefore.Add(-2*s.took)), "the second waited as long as the first took")
	require.Zero(t, testutil.ToFloat64(s.Metrics.gaps))
	place.fail(nil)
	s.took = 0
	require.NoError(t, s.step(t.Context()))
	require.Len(t, s.manifest.Bases, before+1)
	require.Equal(t, 1.0, testutil.ToFloat64(s.Metrics.gaps))
}

// TestStaleFilesAreRemoved, and not those of a process that may still run. What no retry mends ends Ship.
func TestStaleFilesAreRemoved(t *testing.T) {
	w := newWorld(t)
	w.dir = filepath.Join(w.dir, "made", "by", "ship")
	w.place = directory(w.dir)
	w.write(3, rand.New(rand.NewPCG(21, 22)))
	w.ship()
	old := time.Now().Add(-2 * staleAfter)
	for _, name := range []string{".part-1", ".part-2", "sqlbrain-snapshot-1/a", "sqlbrain-snapshot-2/a"} {
		path := filepath.Join(w.dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		if strings.Contains(name, "1") {
			require.NoError(t, os.Chtimes(path, old, old))
			require.NoError(t, os.Chtimes(strings.TrimSuffix(path, "/a"), old, old))
		}
	}
	require.NoError(t, os.Chtimes(filepath.Join(w.dir, "sqlbrain-snapshot-2"), old, old))
	s := w.shipper()
	left, err := filepath.Glob(filepath.Join(w.dir, "*-[12]"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(w.dir, ".part-2"), filepath.Join(w.dir, "sqlbrain-snapshot-2")}, left)

	s.manifest.Format++
	require.NoError(t, s.to.setManifest(t.Context(), s.manifest))
	require.ErrorIs(t, w.refused(w.store), errFormat)
}
