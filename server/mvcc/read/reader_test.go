package read

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// testNode is a node, the table it is on, and what writes to both.
type testNode struct {
	t       *testing.T
	store   sqlstore.Store
	view    *keyspace.View
	index   map[string]coder.Index
	rev     int64
	compact int64
	mu      sync.Mutex // guards what follows
	marks   int        // looks at the mark
	ranges  map[bool]int
}

func newTestNode(t *testing.T, cfg keyspace.Config) (*testNode, *Reader) {
	t.Helper()
	cfg.Revision = 1
	view, err := keyspace.New(cfg)
	require.NoError(t, err)
	n := &testNode{t: t, store: memstore.New(), view: view, index: make(map[string]coder.Index), rev: 1, compact: -1,
		ranges: make(map[bool]int)}
	t.Cleanup(func() { _ = n.store.Close() })
	return n, New(n, n.store, view, mvcc.NewTimeout(time.Minute), 1000)
}

func (n *testNode) Revision() int64        { return n.rev }
func (n *testNode) CompactRevision() int64 { return n.compact }

func (n *testNode) CountRange(table bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ranges[table]++
}

func (n *testNode) ReadRevision(context.Context, auth.Permit, bool) (int64, error) { return n.rev, nil }

func (n *testNode) Await(_ context.Context, rev int64) error {
	if rev > n.rev {
		return fmt.Errorf("revision %d never comes", rev)
	}
	return nil
}

func (n *testNode) Mark(context.Context) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.marks++
	return n.compact, nil
}

// commit writes key in one revision, as often as there are values; nil deletes it.
func (n *testNode) commit(key string, values ...[]byte) {
	n.t.Helper()
	n.rev++
	prev, existed := n.index[key]
	batch := n.store.BeginBatchWrite()
	last := len(values) - 1
	x := coder.Index{ModRevision: n.rev, PrevRevision: prev.ModRevision, CreateRevision: n.rev, Version: 1,
		Tombstone: values[last] == nil}
	switch {
	case x.Tombstone:
		x.CreateRevision, x.Version = 0, 0
	case existed && !prev.Tombstone:
		x.CreateRevision, x.Version = prev.CreateRevision, prev.Version+1
	}
	rec := x.Record([]byte(key))
	rec.Value = values[last]
	change := coder.Change{Revision: n.rev, Key: rec.Key, Tombstone: x.Tombstone}
	e := &watch.Event{Record: rec}
	if existed && !prev.Tombstone {
		change.PrevRevision, e.PrevRevision = prev.ModRevision, prev.ModRevision
	}
	if x.Tombstone {
		e.Type = watch.Delete
	}
	batch.Put(coder.EncodeVersionKey(rec.Key, n.rev), coder.EncodeVersion(rec))
	batch.Put(coder.EncodeIndexKey(rec.Key), coder.EncodeIndex(x))
	batch.Put(coder.EncodeLogKey(n.rev, 1), coder.EncodeLog(time.Time{}, []coder.Change{change})[0])
	require.NoError(n.t, batch.Commit(n.t.Context()))
	n.index[key] = x
	n.view.Apply([]*watch.Event{e})
}

var everything = mvcc.KeyRange{Key: []byte{0}, End: []byte{0}}

// A reading that the purge of the view overtakes may have counted with its help.
func TestCountOfAPurgedViewIsNotRemembered(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	n.commit("a", []byte("v"))
	span := coder.Span{Start: []byte("a"), End: []byte("b")}
	for _, purge := range []bool{true, false} {
		reading := r.At(n.rev)
		_, err := reading.Count(t.Context(), span)
		require.NoError(t, err)
		if purge {
			n.view.Purge(n.rev)
		}
		require.NoError(t, reading.Check(t.Context()))
		_, rest, ok := n.view.Count(span, n.rev)
		require.Equal(t, !purge, ok && rest == nil)
	}
}

// TestCountsAgree: every way to count gives what a list of the same revision has, whether the
// view reaches back to it or not.
func TestCountsAgree(t *testing.T) {
	for _, cfg := range []keyspace.Config{{SpanKeys: 1, CountChanges: 2}, {SpanKeys: 3, CountChanges: 100}, {Budget: 1 << 20}} {
		n, r := newTestNode(t, cfg)
		want := []int64{0, 0}
		for i, alive := 0, int64(0); i < 60; i++ {
			key := fmt.Sprint("k", i*7%13)
			x, existed := n.index[key]
			switch {
			case existed && !x.Tombstone && i%3 == 0:
				n.commit(key, nil)
				alive--
			default:
				if !existed || x.Tombstone {
					alive++
				}
				n.commit(key, []byte("v"))
			}
			want = append(want, alive)
		}
		for rev := int64(1); rev <= n.rev; rev++ {
			now := r.At(rev)
			listed, err := now.Range(t.Context(), &mvcc.RangeRequest{KeyRange: everything})
			require.NoError(t, err)
			require.Len(t, listed.Records, int(want[rev]), "revision %d", rev)
			for name, count := range map[string]func(context.Context, coder.Span) (int64, error){
				"count": now.Count, "each": now.countEach, "table": now.countTable, "spans": now.countSpans,
			} {
				got, err := count(t.Context(), everything.Span())
				require.NoError(t, err)
				require.Equal(t, want[rev], got, "revision %d counted by %s, %+v", rev, name, cfg)
			}
		}
	}
}

func TestStableReadsAgainWhenCompactionOvertakes(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	n.commit("k", []byte("1"))
	var read []int64
	get := func(_ context.Context, now *Reading) error {
		read = append(read, now.Revision())
		_, err := now.Get(t.Context(), []byte("k"), true)
		if len(read) == 1 { // while it was read
			n.commit("k", []byte("2"))
			n.compact = n.rev
			return errors.New("a row is missing")
		}
		return err
	}
	require.NoError(t, r.Stable(t.Context(), auth.System, true, get))
	require.Equal(t, []int64{2, 3}, read)

	read = nil
	err := r.Stable(t.Context(), auth.System, true, func(_ context.Context, now *Reading) error {
		read = append(read, now.Revision())
		_, err := now.Get(t.Context(), []byte("k"), true)
		n.commit("k", []byte("3"))
		n.compact = n.rev
		return err
	})
	require.ErrorIs(t, err, ErrOvertaken)
	require.NotErrorIs(t, err, mvcc.ErrCompacted)
	require.Len(t, read, MaxRaces)
}

// TestOlderRevisionsAreNotReadAgain: a request for a revision is not answered at a newer
// one.
func TestOlderRevisionsAreNotReadAgain(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	n.commit("k", []byte("1"))
	n.commit("k", []byte("2"))
	q := &mvcc.RangeRequest{KeyRange: everything, Revision: 4}
	_, err := r.Range(t.Context(), auth.System, q, true)
	require.ErrorIs(t, err, mvcc.ErrFutureRevision)
	q.Revision = 2
	res, err := r.Range(t.Context(), auth.System, q, true)
	require.NoError(t, err)
	require.Equal(t, "1", string(res.Records[0].Value))
	require.Equal(t, int64(3), res.Revision)

	now := r.At(n.rev)
	n.store = overtaken{n.store, n}
	now.reader.store = n.store
	_, err = now.RangeAt(t.Context(), q)
	require.ErrorIs(t, err, mvcc.ErrCompacted, "compacted while it was read")
	_, err = r.Range(t.Context(), auth.System, q, true)
	require.ErrorIs(t, err, mvcc.ErrCompacted, "compacted before")
}

// overtaken is a store in which a compaction passes every list.
type overtaken struct {
	sqlstore.Store
	n *testNode
}

func (s overtaken) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	rows, more, err := s.Store.List(ctx, q)
	s.n.compact = s.n.rev
	return rows, more, err
}

func (s overtaken) Lookup(ctx context.Context, keys [][]byte, maxBytes int) ([]sqlstore.ListRow, bool, error) {
	rows, more, err := s.Store.Lookup(ctx, keys, maxBytes)
	s.n.compact = s.n.rev
	return rows, more, err
}

// weighedReads is a store that notes the most bytes of values that it returned in one call.
type weighedReads struct {
	sqlstore.Store
	most int
}

func (s *weighedReads) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	values, err := s.Store.MultiGet(ctx, keys)
	s.most = max(s.most, len(bytes.Join(values, nil)))
	return values, err
}

func (s *weighedReads) LatestAtOrBefore(ctx context.Context, ranges []sqlstore.Partition) ([]sqlstore.Row, error) {
	rows, err := s.Store.LatestAtOrBefore(ctx, ranges)
	size := 0
	for _, row := range rows {
		size += len(row.Value)
	}
	s.most = max(s.most, size)
	return rows, err
}

// TestLargeOlderVersionsAreReadInPieces: those that were replaced once, and those that are searched.
func TestLargeOlderVersionsAreReadInPieces(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	const keys, size = 400, 100 << 10
	for i := range keys {
		n.commit(fmt.Sprintf("%03d", i), make([]byte, size))
	}
	old := n.rev
	for i := range keys {
		for range 1 + i%2 {
			n.commit(fmt.Sprintf("%03d", i), []byte("v"))
		}
	}
	store := &weighedReads{Store: n.store}
	r.store = store
	for name, c := range map[string]struct {
		needValue         bool
		pageBytes, atMost int
	}{
		"values":    {needValue: true, atMost: maxReadBytes},
		"no values": {atMost: maxReadBytes},
		"stream":    {needValue: true, pageBytes: firstPageBytes, atMost: firstOlder * size},
	} {
		store.most = 0
		at, read, most := r.At(old), 0, 0
		at.pageBytes = c.pageBytes
		require.NoError(t, at.Scan(t.Context(), everything.Span(), c.needValue, 0, func(records []*coder.Record) bool {
			total := 0
			for _, rec := range records {
				require.Equal(t, fmt.Sprintf("%03d", read), string(rec.Key), name)
				total, read = total+len(rec.Value), read+1
			}
			most = max(most, total)
			return true
		}))
		require.Equal(t, keys, read, name)
		require.Less(t, store.most, c.atMost+2*size, name)
		if c.needValue {
			require.Less(t, most, 2*c.atMost+2*size, name)
		} else {
			require.Zero(t, most, "values are not kept")
		}
	}
}

// TestReadsFromMemoryAskNothing: what needs no row needs no look at the mark either.
func TestReadsFromMemoryAskNothing(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{Budget: 1 << 20})
	n.commit("a", []byte("1"))
	n.commit("b", []byte("1"))
	q := &mvcc.RangeRequest{KeyRange: everything}
	for range 2 {
		n.marks = 0
		res, err := r.Range(t.Context(), auth.System, q, true)
		require.NoError(t, err)
		require.Len(t, res.Records, 2)
	}
	require.Zero(t, n.marks)
	require.Equal(t, map[bool]int{true: 1, false: 1}, n.ranges)
}

// TestStreamsEndWhenCompactionOvertakes: what was sent cannot be taken back, so a stream is not
// read again.
func TestStreamsEndWhenCompactionOvertakes(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	for i := range 10 {
		n.commit(fmt.Sprint("k", i), make([]byte, 100))
	}
	q := &mvcc.RangeRequest{KeyRange: everything}
	stream := func() (sent int, err error) {
		now, err := r.Now(t.Context(), auth.System, true)
		require.NoError(t, err)
		return sent, now.RangeStream(t.Context(), q, 300, func(chunk *mvcc.RangeResult, last bool) error {
			sent += len(chunk.Records)
			require.Equal(t, last, chunk.Revision > 0)
			return nil
		})
	}
	now, err := r.Now(t.Context(), auth.System, true)
	require.NoError(t, err)
	n.rev++
	n.compact = n.rev
	err = now.RangeStream(t.Context(), q, 300, func(*mvcc.RangeResult, bool) error {
		t.Error("a chunk is sent that may lack keys")
		return nil
	})
	require.ErrorIs(t, err, mvcc.ErrCompacted)
	_, err = stream()
	require.NoError(t, err)
	q.SortBy = mvcc.SortByMod
	_, err = stream()
	require.ErrorIs(t, err, mvcc.ErrSortTooLarge)
}

// TestStreamsOfTheNewestRevisionChooseItAgain: a client that asked for no revision is not told that it was compacted.
func TestStreamsOfTheNewestRevisionChooseItAgain(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	n.commit("k", []byte("1"))
	behind := int64(2)
	follower := New(catchingUp{n, &behind}, n.store, n.view, mvcc.NewTimeout(time.Minute), 1000)
	n.commit("k", []byte("2"))
	n.compact = n.rev
	var got []string
	send := func(chunk *mvcc.RangeResult, last bool) error {
		for _, rec := range chunk.Records {
			got = append(got, string(rec.Value))
		}
		return nil
	}
	q := &mvcc.RangeRequest{KeyRange: everything}
	require.NoError(t, follower.RangeStream(t.Context(), auth.System, q, false, 300, send))
	require.Equal(t, []string{"2"}, got)

	q.Revision, behind = 2, 2
	require.ErrorIs(t, follower.RangeStream(t.Context(), auth.System, q, false, 300, send), mvcc.ErrCompacted)
	q.Revision = 0
	r.store = overtakenAgain{n.store, n}
	require.ErrorIs(t, r.RangeStream(t.Context(), auth.System, q, false, 300, send), ErrOvertaken)
	require.Len(t, got, 1)
}

// catchingUp is a node at revision *behind until something waits for a later one.
type catchingUp struct {
	*testNode
	behind *int64
}

func (n catchingUp) ReadRevision(context.Context, auth.Permit, bool) (int64, error) {
	return *n.behind, nil
}

func (n catchingUp) Await(_ context.Context, rev int64) error {
	*n.behind = rev
	return nil
}

// overtakenAgain is a store in which a write and its compaction pass every list.
type overtakenAgain struct {
	sqlstore.Store
	n *testNode
}

func (s overtakenAgain) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	rows, more, err := s.Store.List(ctx, q)
	s.n.commit("k", []byte("3"))
	s.n.compact = s.n.rev
	return rows, more, err
}

// slowPages counts the pages beyond the first of a range that are read at once.
type slowPages struct {
	sqlstore.Store
	first       []byte // where the ranges start
	atOnce, max atomic.Int32
}

func (s *slowPages) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	if !bytes.Equal(q.Start, s.first) {
		n := s.atOnce.Add(1)
		defer s.atOnce.Add(-1)
		for most := s.max.Load(); n > most && !s.max.CompareAndSwap(most, n); most = s.max.Load() {
		}
		time.Sleep(time.Millisecond)
	}
	return s.Store.List(ctx, q)
}

func TestLongRangesTakeTurns(t *testing.T) {
	n, r := newTestNode(t, keyspace.Config{})
	keys := 20 * mvcc.PageRows
	for i := range keys {
		n.commit(fmt.Sprintf("k/%06d", i), []byte("v"))
	}
	long := mvcc.KeyRange{Key: []byte("k/"), End: []byte("k0")}
	first, _ := long.Span().IndexBounds()
	store := &slowPages{Store: n.store, first: first}
	r.store = store
	var wg sync.WaitGroup
	for i := range 8 * runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			if i%2 == 0 {
				res, err := r.Range(t.Context(), auth.System, &mvcc.RangeRequest{KeyRange: long}, true)
				if assert.NoError(t, err) {
					assert.Len(t, res.Records, keys)
				}
				return
			}
			now, err := r.Now(t.Context(), auth.System, true)
			if assert.NoError(t, err) {
				assert.NoError(t, now.RangeStream(t.Context(), &mvcc.RangeRequest{KeyRange: long}, 1<<10,
					func(*mvcc.RangeResult, bool) error { return nil }))
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, int(store.max.Load()), runtime.GOMAXPROCS(0))
	require.Empty(t, r.turns, "all turns were given back")

	for range cap(r.turns) {
		r.turns <- struct{}{}
	}
	short := &mvcc.RangeRequest{KeyRange: long, Limit: 10}
	res, err := r.Range(t.Context(), auth.System, short, true)
	require.NoError(t, err, "a range of one page waits for nobody")
	require.Len(t, res.Records, 10)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = r.Range(ctx, auth.System, &mvcc.RangeRequest{KeyRange: long}, true)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
