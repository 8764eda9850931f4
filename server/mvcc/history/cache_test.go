package history

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
	"github.com/sqlbrain/sqlbrain/watch"
)

var everyKey = []byte{0}

// newDeletions returns a store whose log has revisions with so many deletions each. They have no version rows. A
// commit has inCommit revisions.
func newDeletions(t *testing.T, inCommit, keyBytes int, sizes ...int) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var changes []coder.Change
	for i, size := range sizes {
		rev := int64(2 + i)
		for sub := range size {
			changes = append(changes, coder.Change{
				Revision: rev, Sub: int32(sub), Tombstone: true, PrevRevision: 1, Key: fmt.Appendf(nil, "%0*d", keyBytes, sub),
			})
		}
		if (i+1)%inCommit > 0 && i+1 < len(sizes) {
			continue
		}
		batch := s.BeginBatchWrite()
		for part, row := range coder.EncodeLog(time.UnixMilli(1), changes) {
			batch.Put(coder.EncodeLogKey(rev, uint16(part+1)), row)
		}
		require.NoError(t, batch.Commit(t.Context()))
		changes = nil
	}
	return s
}

// hooked calls before when a range is read, which fails with its error.
type hooked struct {
	sqlstore.Store
	before func(ctx context.Context) error
}

func (s *hooked) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	return func(yield func(sqlstore.Row, error) bool) {
		if err := s.before(ctx); err != nil {
			yield(sqlstore.Row{}, err)
			return
		}
		s.Store.Iter(ctx, r)(yield)
	}
}

// revisionsOf reads the changes of a range in [from, to] as a watcher does, and returns their revisions.
func revisionsOf(t *testing.T, l *Log, key, end []byte, from, to int64, atMost int) (revs []int64) {
	for from <= to {
		events, next, err := l.Changes(t.Context(), key, end, from, to, atMost)
		require.NoError(t, err)
		require.Greater(t, next, from)
		for _, e := range events {
			revs = append(revs, e.Record.ModRevision)
		}
		from = next
	}
	return revs
}

// A commit whose changes do not fit into one log row is read whole, though it has more changes than a page.
func TestChangesOfACommitInSeveralLogRows(t *testing.T) {
	const n = 12_000
	s := newDeletions(t, 1, 200, n, 1)
	events, next, err := New(s, markAt(-1)).Changes(t.Context(), everyKey, everyKey, 2, 3, UsualBytes)
	require.NoError(t, err)
	require.Len(t, events, n)
	require.EqualValues(t, 3, next)
}

// Watchers that go through the same history in turn read each log row once, wherever they start.
func TestWatchersShareTheLog(t *testing.T) {
	const commits, watchers = 200, 50
	sizes := make([]int, commits)
	for i := range sizes {
		sizes[i] = 100
	}
	s := &counted{Store: newDeletions(t, 1, 20, sizes...)}
	l := New(s, markAt(-1)).Cached()
	var next [watchers]int64
	for i := range next {
		next[i] = 2 + int64(i)
	}
	for behind := true; behind; {
		behind = false
		for i := range next {
			if next[i] > commits+1 {
				continue
			}
			var err error
			_, next[i], err = l.Changes(t.Context(), []byte("none"), nil, next[i], commits+1, UsualBytes)
			require.NoError(t, err)
			behind = true
		}
	}
	// At the end of a page one row more is read.
	require.Less(t, s.rows, commits+commits/10)
}

// Concurrent readers of a page wait for the one that reads it. If its context ends, another one reads.
func TestConcurrentWatchersReadAPageOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := &hooked{Store: newDeletions(t, 1, 20, 1, 1, 1), before: func(ctx context.Context) error {
			reads++ // one at a time
			return retry.Sleep(ctx, time.Second)
		}}
		l := New(s, markAt(-1)).Cached()
		first, cancel := context.WithCancel(t.Context())
		var readers sync.WaitGroup
		readers.Go(func() {
			_, _, err := l.Changes(first, everyKey, everyKey, 2, 4, UsualBytes)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		for range 10 {
			readers.Go(func() {
				events, _, err := l.Changes(t.Context(), everyKey, everyKey, 2, 4, UsualBytes)
				assert.NoError(t, err)
				assert.Len(t, events, 3)
			})
		}
		waiting, cancelWaiting := context.WithCancel(t.Context())
		readers.Go(func() {
			_, _, err := l.Changes(waiting, everyKey, everyKey, 2, 4, UsualBytes)
			assert.ErrorIs(t, err, context.Canceled)
		})
		synctest.Wait()
		require.Equal(t, 1, reads)
		cancelWaiting()
		cancel()
		readers.Wait()
		require.Equal(t, 2, reads)
	})
}

// A cached log answers as the table does: whole revisions, of the range, up to where the caller asked.
func TestCachedLogAnswersAsTheTable(t *testing.T) {
	const revisions = 600
	random := rand.New(rand.NewPCG(1, 2))
	sizes := make([]int, revisions)
	for i := range sizes {
		sizes[i] = 1 + random.IntN(20)
	}
	plain := New(newDeletions(t, 7, 1000, sizes...), markAt(-1))
	cached := plain.Cached()
	for range 50 {
		from := 2 + random.Int64N(revisions)
		to := min(from+random.Int64N(revisions), revisions+1)
		key, end := fmt.Appendf(nil, "%01000d", random.IntN(20)), []byte(nil)
		if random.IntN(2) == 0 {
			end = []byte{0}
		}
		atMost := 1 << (14 + random.IntN(6))
		require.Equal(t, revisionsOf(t, plain, key, end, from, to, UsualBytes),
			revisionsOf(t, cached, key, end, from, to, atMost))
		require.LessOrEqual(t, cached.cache.bytes, cacheBytes)
		sum := 0
		for _, p := range cached.cache.pages {
			sum += p.bytes
		}
		require.Equal(t, sum, cached.cache.bytes)
		require.NotZero(t, sum)
	}
	require.Empty(t, cached.cache.reading)
}

// A commit that is larger than the cache is read, and not kept.
func TestLargeCommitIsNotCached(t *testing.T) {
	const n = 40_000
	l := New(newDeletions(t, 1, 100, 1, n, 1), markAt(-1)).Cached()
	for range 2 {
		require.Len(t, revisionsOf(t, l, everyKey, everyKey, 2, 4, UsualBytes), n+2)
	}
	require.Less(t, l.cache.bytes, pageBytes)
}

// What was read before a compaction is refused afterwards, and what is left of it is not taken for all.
func TestCachedHistoryIsRefusedOnceItIsCompacted(t *testing.T) {
	mark := int64(-1)
	s := newTable(t, []string{"a"}, []string{"a"}, []string{"a"})
	l := New(s, func(context.Context) (int64, error) { return mark, nil }).Cached()
	require.Equal(t, []int64{2, 3, 4}, revisionsOf(t, l, everyKey, everyKey, 2, 4, UsualBytes))
	mark = 3
	_, _, err := l.Changes(t.Context(), []byte("none"), nil, 2, 4, UsualBytes)
	var refused *watch.CompactedError
	require.True(t, errors.As(err, &refused) && refused.Revision == mark, err)
	require.Equal(t, []int64{3, 4}, revisionsOf(t, l, everyKey, everyKey, 3, 4, UsualBytes))
}

// A failed read leaves nothing in the cache.
func TestFailedReadIsNotCached(t *testing.T) {
	failed := errors.New("the connection is lost")
	s := &hooked{newDeletions(t, 1, 20, 1, 1), func(context.Context) error { return failed }}
	l := New(s, markAt(-1)).Cached()
	_, _, err := l.Changes(t.Context(), everyKey, everyKey, 2, 3, UsualBytes)
	require.ErrorIs(t, err, failed)
	s.before = func(context.Context) error { return nil }
	require.Equal(t, []int64{2, 3}, revisionsOf(t, l, everyKey, everyKey, 2, 3, UsualBytes))
}
