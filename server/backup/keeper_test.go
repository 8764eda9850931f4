package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// flaky is a place that fails, or does not return, on request.
type flaky struct {
	Place
	err  atomic.Pointer[error]
	hung atomic.Pointer[chan struct{}] // what is sent to it, and then received, is a call that hangs
}

func (f *flaky) fail(err error) { f.err.Store(&err) }

func (f *flaky) Create(ctx context.Context, name string, write func(io.Writer) error) error {
	if hung := f.hung.Load(); hung != nil {
		*hung <- struct{}{}
		<-*hung
	}
	if err := f.err.Load(); err != nil && *err != nil {
		return *err
	}
	return f.Place.Create(ctx, name, write)
}

func (w *world) keeper(place Place, m *Metrics) *Keeper {
	k := NewKeeper(Config{Store: w.store, To: place, TempDir: w.t.TempDir(), Log: slog.New(slog.DiscardHandler),
		Metrics: m, Interval: time.Millisecond, SegmentBytes: 500})
	w.t.Cleanup(func() { require.True(w.t, k.Close(eventually.Deadline)) })
	return k
}

// caughtUp waits until a backup has the newest revision.
func (w *world) caughtUp() {
	w.t.Helper()
	eventually.True(w.t, "the backup catches up", func() bool {
		m, err := archive{Place: w.place}.manifest(w.t.Context())
		require.NoError(w.t, err)
		return (&shipper{manifest: m}).position() == w.Revision()
	})
}

// TestKeepersTakeTurns: each leader continues what the one before wrote, and no commit is missing.
func TestKeepersTakeTurns(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t)
	w.write(3, random)
	first := w.Revision()
	keepers := []*Keeper{w.keeper(w.place, NewMetrics(nil)), w.keeper(w.place, NewMetrics(nil))}
	for turn := range 6 {
		ctx, cancel := context.WithCancel(t.Context())
		keepers[turn%2].Lead(ctx)
		w.write(1+random.IntN(5), random)
		if turn%3 > 0 { // else it may be stopped anywhere
			w.caughtUp()
		}
		cancel()
		w.write(random.IntN(3), random)
	}
	// While it finishes, its manifest may replace the next one's for as long as that one takes to notice.
	require.True(t, keepers[1].Close(eventually.Deadline))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	keepers[0].Lead(ctx)
	w.caughtUp()
	m, err := archive{Place: w.place}.manifest(t.Context())
	require.NoError(t, err)
	require.Len(t, m.Bases, 1)
	for revision := max(first, m.Bases[0].Revision); revision <= w.Revision(); revision++ {
		got, _ := w.restored(Moment{Revision: revision})
		require.Equal(t, hash(t, w.Replica, revision), hash(t, got, 0), "revision %d", revision)
	}
}

// TestStoppedKeeperFinishes: the last leader's backup has every commit, however soon it stops. One that was deposed
// writes nothing.
func TestStoppedKeeperFinishes(t *testing.T) {
	for _, deposed := range []bool{false, true} {
		w := newWorld(t)
		random := rand.New(rand.NewPCG(25, 26))
		w.write(3, random)
		k := NewKeeper(Config{Store: w.store, To: w.place, TempDir: t.TempDir(), Log: slog.New(slog.DiscardHandler),
			Metrics: NewMetrics(nil), Interval: time.Hour, SegmentBytes: 500})
		ctx, cancel := context.WithCancel(t.Context())
		k.Lead(ctx)
		w.caughtUp()
		shipped := w.Revision()
		w.write(20, random)
		if deposed {
			token, old, err := fence.LoadToken(t.Context(), w.store)
			require.NoError(t, err)
			token.Sequence, token.Term = token.Sequence+1, token.Term+1
			batch := w.store.BeginBatchWrite()
			batch.CAS(coder.FenceKey(), coder.EncodeFenceToken(token), old)
			require.NoError(t, batch.Commit(t.Context()))
		}
		cancel()
		require.True(t, k.Close(eventually.Deadline))
		m, err := archive{Place: w.place}.manifest(t.Context())
		require.NoError(t, err)
		require.Equal(t, map[bool]int64{false: w.Revision(), true: shipped}[deposed], (&shipper{manifest: m}).position())
	}
}

// TestKeeperOutlivesFailures of the place and the database: it counts each, exports how old the backup is, and
// continues. Without its node's leadership it exports nothing.
func TestKeeperOutlivesFailures(t *testing.T) {
	w := newWorld(t)
	random := rand.New(rand.NewPCG(23, 24))
	w.write(3, random)
	registry := prometheus.NewRegistry()
	metrics := NewMetrics(registry)
	place := &flaky{Place: w.place}
	denying := &denying{Store: w.store}
	w.store = denying
	k := w.keeper(place, metrics)
	gauges := func() int {
		n, err := testutil.GatherAndCount(registry, "sqlbrain_backup_age_seconds", "sqlbrain_backup_revision")
		require.NoError(t, err)
		return n
	}
	require.Zero(t, gauges())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	k.Lead(ctx)
	w.caughtUp()
	for reason, fail := range map[string]func(bool){
		"place":  func(on bool) { place.fail(map[bool]error{true: errors.New("away")}[on]) },
		"denied": func(on bool) { place.fail(map[bool]error{true: fs.ErrPermission}[on]) },
		"database": func(on bool) {
			denying.fail(map[bool]error{true: sqlstore.ErrUnavailable}[on])
		},
	} {
		failed := metrics.failures.WithLabelValues(reason)
		fails := func(times float64) *point {
			before := testutil.ToFloat64(failed)
			eventually.True(t, reason, func() bool { return testutil.ToFloat64(failed) >= before+times })
			return metrics.point.Load()
		}
		fail(true)
		w.write(2, random)
		since := fails(1)
		require.True(t, since.until.Equal(fails(2).until), "%s: the age must grow", reason)
		require.Equal(t, 2, gauges())
		fail(false)
		w.caughtUp()
	}
	cancel()
	eventually.True(t, "nothing is exported", func() bool { return gauges() == 0 })
}

// denying is a store whose reads fail on request.
type denying struct {
	sqlstore.Store
	err atomic.Pointer[error]
}

func (d *denying) fail(err error) { d.err.Store(&err) }

func (d *denying) Get(ctx context.Context, key []byte) ([]byte, error) {
	if err := d.err.Load(); err != nil && *err != nil {
		return nil, *err
	}
	return d.Store.Get(ctx, key)
}

// TestDeniedAccessEndsShip: the command must say that its password is wrong.
func TestDeniedAccessEndsShip(t *testing.T) {
	w := newWorld(t)
	w.write(3, rand.New(rand.NewPCG(25, 26)))
	w.ship()
	store := &denying{Store: w.store}
	store.fail(fmt.Errorf("%w: 1045", sqlstore.ErrDenied))
	require.ErrorIs(t, w.refused(store), sqlstore.ErrDenied)
}

// TestHungPlaceHoldsUpNothing: neither the end of a leadership nor the stop of the process.
func TestHungPlaceHoldsUpNothing(t *testing.T) {
	w := newWorld(t)
	w.write(3, rand.New(rand.NewPCG(27, 28)))
	place, hung := &flaky{Place: w.place}, make(chan struct{})
	place.hung.Store(&hung)
	registry := prometheus.NewRegistry()
	k := w.keeper(place, NewMetrics(registry))
	t.Cleanup(func() { close(hung) })
	exported := func() int {
		n, err := testutil.GatherAndCount(registry, "sqlbrain_backup_age_seconds")
		require.NoError(t, err)
		return n
	}
	term, end := context.WithCancel(t.Context())
	k.Lead(term)
	<-hung
	require.Equal(t, 1, exported())
	end()
	require.Zero(t, exported())
	next, cancel := context.WithCancel(t.Context())
	returned := make(chan struct{})
	go func() { defer close(returned); k.Lead(next) }()
	eventually.True(t, "the next term exports an age", func() bool { return exported() == 1 })
	cancel()
	<-returned
	require.Zero(t, exported())
	require.False(t, k.Close(time.Millisecond))
}
