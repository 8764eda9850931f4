package compact

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// table is a store with the rows of commits of one change each.
type table struct {
	sqlstore.Store
	t     *testing.T
	stuck atomic.Bool // no commit succeeds
	sizes []int       // changes of each commit
	index map[string]coder.Index
}

func newTable(t *testing.T) *table {
	s := &table{Store: storetest.OverwriteRows(memstore.New()), t: t, index: make(map[string]coder.Index)}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *table) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if s.stuck.Load() {
			return fmt.Errorf("%w: made up", sqlstore.ErrUnavailable)
		}
		s.sizes = append(s.sizes, b.Len())
		return b.BatchWrite.Commit(ctx)
	})
}

// write writes the rows of a put of key, or of its deletion, at revision rev.
func (s *table) write(key string, rev int64, tombstone bool) {
	s.t.Helper()
	prev := s.index[key]
	change := coder.Change{Revision: rev, Key: []byte(key), Tombstone: tombstone, PrevRevision: prev.ModRevision}
	b := s.Store.BeginBatchWrite()
	if prev.Tombstone {
		change.PrevRevision, change.PrevTombstone = 0, prev.ModRevision
		b.Put(coder.EncodeVersionKey([]byte(key), prev.ModRevision), coder.EncodeTombstone())
	}
	s.index[key] = coder.Index{ModRevision: rev, CreateRevision: rev, Version: 1, Tombstone: tombstone}
	if !tombstone {
		b.Put(coder.EncodeVersionKey([]byte(key), rev),
			coder.EncodeVersion(&coder.Record{Key: []byte(key), ModRevision: rev, CreateRevision: rev, Version: 1}))
	}
	b.Put(coder.EncodeIndexKey([]byte(key)), coder.EncodeIndex(s.index[key]))
	b.Put(coder.EncodeLogKey(rev, 1), coder.EncodeLog(time.Time{}, []coder.Change{change})[0])
	if err := b.Commit(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// claim writes the claim row, as the leader does.
func (s *table) claim(ctx context.Context, claim []byte) error {
	b := s.BeginBatchWrite()
	b.Put(coder.ClaimKey(), claim)
	return b.Commit(ctx)
}

func (s *table) has(key []byte) bool {
	s.t.Helper()
	_, err := s.Get(s.t.Context(), key)
	if err != nil && !errors.Is(err, sqlstore.ErrKeyNotFound) {
		s.t.Fatal(err)
	}
	return err == nil
}

// expect checks which of the revisions 2 to upTo of key have a version row.
func (s *table) expect(key string, upTo int64, left ...int64) {
	s.t.Helper()
	want := make(map[int64]bool)
	for _, rev := range left {
		want[rev] = true
	}
	for rev := int64(2); rev <= upTo; rev++ {
		if got := s.has(coder.EncodeVersionKey([]byte(key), rev)); got != want[rev] {
			s.t.Errorf("the version of %q at revision %d is there: %v, want %v", key, rev, got, want[rev])
		}
	}
}

// start runs a Remover whose compact revision is mark, until the test ends.
func start(t *testing.T, s *table, revision int64, deadline time.Duration) (r *Remover, mark *atomic.Int64) {
	mark = &atomic.Int64{}
	mark.Store(revision)
	r = NewRemover(Config{
		Store: s, Revision: mark.Load, Claim: s.claim, Count: quota.NewCount(coder.FenceToken{}),
		TombstonesRemoved: func([]coder.Change) {}, Deadline: deadline, Logger: slog.New(slog.DiscardHandler),
		Metrics: NewMetrics(prometheus.NewRegistry()),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return r, mark
}

func wait(t *testing.T, r *Remover, rev int64) {
	t.Helper()
	if removed, err := r.Wait(t.Context(), rev, nil); err != nil || !removed {
		t.Fatal(removed, err)
	}
}

func TestRemoverKeepsWhatRevisionsNeed(t *testing.T) {
	s := newTable(t)
	s.write("changed", 2, false)
	s.write("changed", 3, false)
	s.write("gone", 4, false)
	s.write("gone", 5, true)
	s.write("back", 6, false)
	s.write("back", 7, true)
	s.write("changed", 8, false)
	s.write("back", 9, false)
	r, _ := start(t, s, 8, time.Minute)
	wait(t, r, 8)
	s.expect("changed", 9, 8)
	s.expect("gone", 9)
	s.expect("back", 9, 7, 9) // revision 9, which replaced the tombstone, is not compacted
	if s.has(coder.EncodeIndexKey([]byte("gone"))) {
		t.Error("the index row of a deleted key is left")
	}
	if !s.has(coder.EncodeIndexKey([]byte("back"))) {
		t.Error("the index row of a key that was created again is gone")
	}
	for rev := int64(2); rev <= 9; rev++ {
		if got, want := s.has(coder.EncodeLogKey(rev, 1)), rev >= 8; got != want {
			t.Errorf("the log row of revision %d is there: %v", rev, got)
		}
	}
}

// A watch may start at the compact revision, so that its deletions stay until the next compaction.
// The versions that it deleted or overwrote go.
func TestRemoverRemovesWhatTheCompactRevisionReplaced(t *testing.T) {
	s := newTable(t)
	s.write("gone", 2, false)
	s.write("gone", 3, true)
	r, mark := start(t, s, 3, time.Minute)
	wait(t, r, 3)
	s.expect("gone", 3)
	if !s.has(coder.EncodeIndexKey([]byte("gone"))) || !s.has(coder.EncodeLogKey(3, 1)) {
		t.Error("the index row or the log row of a deletion at the compact revision is gone")
	}
	s.write("other", 4, false)
	mark.Store(4)
	r.Wake()
	wait(t, r, 4)
	s.expect("gone", 4)
	if s.has(coder.EncodeIndexKey([]byte("gone"))) || s.has(coder.EncodeLogKey(3, 1)) {
		t.Error("the index row or the log row of a deletion below the compact revision is left")
	}
}

// A commit has several revisions. The compact revision may be any of them.
func TestRemoverRemovesUpToARevisionWithinACommit(t *testing.T) {
	s := newTable(t)
	s.write("k", 2, false)
	s.write("gone", 3, false)
	s.write("gone", 4, true)
	for rev := int64(5); rev <= 7; rev++ {
		s.write("k", rev, false)
	}
	b := s.BeginBatchWrite()
	for rev := int64(4); rev < 7; rev++ {
		b.Del(coder.EncodeLogKey(rev, 1))
	}
	b.Put(coder.EncodeLogKey(7, 1), coder.EncodeLog(time.Time{}, []coder.Change{
		{Revision: 4, Key: []byte("gone"), PrevRevision: 3, Tombstone: true},
		{Revision: 5, Key: []byte("k"), PrevRevision: 2},
		{Revision: 6, Key: []byte("k"), PrevRevision: 5},
		{Revision: 7, Key: []byte("k"), PrevRevision: 6},
	})[0])
	if err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r, _ := start(t, s, 6, time.Minute)
	wait(t, r, 6)
	s.expect("k", 7, 6, 7)
	s.expect("gone", 7)
	if !s.has(coder.EncodeLogKey(7, 1)) {
		t.Error("the log row of revisions at and above the compact revision is gone")
	}
}

func TestRemoverContinuesAfterFailures(t *testing.T) {
	s := newTable(t)
	for rev := int64(2); rev <= 5; rev++ {
		s.write("k", rev, false)
	}
	s.stuck.Store(true)
	r, _ := start(t, s, 5, time.Minute)
	go func() {
		for r.failed() == nil {
			time.Sleep(time.Millisecond)
		}
		s.stuck.Store(false)
	}()
	wait(t, r, 5)
	s.expect("k", 5, 5)
}

func (r *Remover) failed() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failure
}

func TestWaitIsBounded(t *testing.T) {
	s := newTable(t)
	s.write("k", 2, false)
	s.write("k", 3, false)
	s.stuck.Store(true)
	r, _ := start(t, s, 3, 10*time.Millisecond)
	if _, err := r.Wait(t.Context(), 3, nil); !errors.Is(err, ErrStalled) {
		t.Errorf("%v, want ErrStalled", err)
	}
	ended := make(chan struct{})
	close(ended)
	r.cfg.Deadline = time.Minute
	if removed, err := r.Wait(t.Context(), 3, ended); removed || err != nil {
		t.Errorf("at the end of the leadership: %v, %v", removed, err)
	}
}

// A database that loses its newest commits may lose those that replaced a version, which is then
// needed again. It loses the claim with them.
func TestRemoverStopsWhenTheDatabaseLostItsClaim(t *testing.T) {
	for name, lose := range map[string]func(b sqlstore.BatchWrite){
		"no claim before": func(b sqlstore.BatchWrite) { b.Del(coder.ClaimKey()) },
		"an older claim":  func(b sqlstore.BatchWrite) { b.Put(coder.ClaimKey(), coder.EncodeInt64(7)) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newTable(t)
			s.write("k", 2, false)
			s.write("k", 3, false)
			claims := 0
			r := NewRemover(Config{
				Store: s, Claim: func(ctx context.Context, claim []byte) error {
					claims++
					if err := s.claim(ctx, claim); err != nil {
						return err
					}
					b := s.BeginBatchWrite()
					lose(b)
					return b.Commit(ctx)
				},
				TombstonesRemoved: func([]coder.Change) {}, Count: quota.NewCount(coder.FenceToken{}),
				Logger: slog.New(slog.DiscardHandler), Metrics: NewMetrics(prometheus.NewRegistry()),
			})
			conflict := new(sqlstore.Conflict)
			if err := r.removeUpTo(t.Context(), 3); !errors.As(err, &conflict) {
				t.Errorf("%v, want a conflict", err)
			}
			s.expect("k", 3, 2, 3)
			if err := r.removeUpTo(t.Context(), 2); err != nil || claims != 1 {
				t.Errorf("without work: %v, %d claims", err, claims)
			}
		})
	}
}

// Commits of clients wait for a chunk if the store makes one commit at a time.
func TestChunksAreSmallWhereCommitsWait(t *testing.T) {
	const rev = 2 * chunkRows
	for exclusive, most := range map[bool]int{false: chunkRows, true: exclusiveRows} {
		synctest.Test(t, func(t *testing.T) {
			s := newTable(t)
			for at := int64(2); at <= rev; at++ {
				s.write("k", at, false)
			}
			r := NewRemover(Config{
				Store: s, Claim: s.claim, TombstonesRemoved: func([]coder.Change) {}, Exclusive: exclusive,
				Count: quota.NewCount(coder.FenceToken{}), Logger: slog.New(slog.DiscardHandler),
				Metrics: NewMetrics(prometheus.NewRegistry()),
			})
			if err := r.removeUpTo(t.Context(), rev); err != nil {
				t.Fatal(err)
			}
			s.expect("k", rev, rev)
			const also = 3 // a log row, and two of the remover's own
			if largest := slices.Max(s.sizes); largest > most+also || largest < most {
				t.Errorf("%d commits of at most %d rows", len(s.sizes), largest)
			}
		})
	}
}
