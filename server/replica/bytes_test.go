package replica

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// doubtful is a store some of whose commits have an unknown outcome.
type doubtful struct {
	sqlstore.Store
	doubts   atomic.Bool
	removals bool // those of compaction as well
	n        atomic.Int64
}

func (s *doubtful) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		n := s.n.Add(1)
		if !s.doubts.Load() || n%5 > 1 || !s.removals && b.Writes(coder.RemovedKey()) {
			return b.BatchWrite.Commit(ctx)
		}
		if n%5 == 0 {
			if err := b.BatchWrite.Commit(ctx); err != nil {
				return err
			}
		}
		return fmt.Errorf("%w: made up", sqlstore.ErrUncertain)
	})
}

// sum returns the bytes of the counted rows, and of all.
func sum(t *testing.T, store sqlstore.Store) (counted, all int64) {
	t.Helper()
	for row, err := range store.Iter(t.Context(), sqlstore.Range{Start: []byte{}, End: bytes.Repeat([]byte{255}, 100)}) {
		require.NoError(t, err)
		n := int64(len(row.Key) + len(row.Value))
		if all += n; coder.IsCounted(row.Key) {
			counted += n
		}
	}
	return counted, all
}

// stored returns the bytes of counted rows that the table itself names, false if it names none.
func stored(t *testing.T, store sqlstore.Store) (n int64, known bool) {
	t.Helper()
	values, err := store.MultiGet(t.Context(), [][]byte{coder.FenceKey(), coder.RemovedKey()})
	require.NoError(t, err)
	token, err := coder.DecodeFenceToken(values[0])
	require.NoError(t, err)
	var removed int64
	if values[1] != nil {
		removed, err = coder.DecodeInt64(values[1])
		require.NoError(t, err)
	}
	return token.Bytes - removed, token.Bytes > 0
}

// awaitCount waits until the leader has counted the bytes of all rows.
func awaitCount(t *testing.T, store sqlstore.Store) {
	t.Helper()
	eventually.True(t, "the rows are counted", func() bool {
		_, err := store.Get(t.Context(), coder.CountedKey())
		return err == nil
	})
}

// forget makes the fence row one of a table whose bytes were never counted.
func forget(t *testing.T, store sqlstore.Store) {
	t.Helper()
	old, err := store.Get(t.Context(), coder.FenceKey())
	require.NoError(t, err)
	token, err := coder.DecodeFenceToken(old)
	require.NoError(t, err)
	token.Sequence++
	token.Bytes = 0
	b := store.BeginBatchWrite()
	b.CAS(coder.FenceKey(), coder.EncodeFenceToken(token), old)
	b.Del(coder.CountedKey())
	require.NoError(t, b.Commit(t.Context()))
}

// bytesHistory is a random history of everything that changes counted rows.
type bytesHistory struct {
	t      *testing.T
	r      *rand.Rand
	b      *Replica
	leases []int64
}

func (h *bytesHistory) key() string { return fmt.Sprintf("k%02d", h.r.IntN(40)) }

func (h *bytesHistory) step() {
	ctx := h.t.Context()
	switch n := h.r.IntN(20); {
	case n < 9:
		p := &mvcc.PutRequest{Key: []byte(h.key()), Value: make([]byte, h.r.IntN(300))}
		if len(h.leases) > 0 && h.r.IntN(3) == 0 {
			p.Lease = h.leases[h.r.IntN(len(h.leases))]
		}
		mustTxn(h.t, h.b, &mvcc.Txn{Then: []mvcc.Op{{Put: p}}})
	case n < 12:
		mustTxn(h.t, h.b, create(h.key(), "created"))
	case n < 15:
		mustTxn(h.t, h.b, del(h.key()))
	case n == 15:
		mustTxn(h.t, h.b, &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: rangeOf("k1", "k3")}}}})
	case n == 16:
		l, err := lessor(h.t, h.b).Grant(ctx, auth.System, 0, 1000)
		require.NoError(h.t, err)
		h.leases = append(h.leases, l.ID)
	case n == 17 && len(h.leases) > 0:
		_, err := lessor(h.t, h.b).Revoke(ctx, auth.System, h.leases[0])
		require.NoError(h.t, err)
		h.leases = h.leases[1:]
	default:
		rev := h.b.Revision() - int64(h.r.IntN(3))
		if _, err := h.b.Compact(ctx, auth.System, rev, h.r.IntN(2) == 0); err != nil &&
			!errors.Is(err, mvcc.ErrCompacted) {
			require.NoError(h.t, err)
		}
	}
}

// TestCountOfBytesIsExact: with commits in doubt, failovers, compaction, and counting anew while all that goes on.
func TestCountOfBytesIsExact(t *testing.T) {
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			store := &doubtful{Store: newStore(t), removals: seed%3 == 2}
			h := &bytesHistory{t: t, r: rand.New(rand.NewPCG(seed, 1))}
			for round := range 6 {
				store.doubts.Store(false)
				h.b = open(t, store, func(c *Config) { c.Exclusive = round%2 == 0 })
				store.doubts.Store(seed%3 > 0)
				for range 150 {
					h.step()
				}
				if !store.removals { // else a removal in doubt may leave a difference
					require.NoError(t, settle(t, h.b))
					counted, _ := sum(t, store)
					n, known := stored(t, store)
					require.True(t, known)
					require.Equal(t, counted, n, "round %d", round)
				}
				store.doubts.Store(false)
				if round%3 == 2 {
					mustTxn(t, h.b, put("last", "before another leader")) // a crash: the next one fences it
					continue
				}
				closeReplica(t, h.b)
			}
			require.NoError(t, settle(t, h.b))
			if _, err := h.b.leading.Load().bytes.Scan(t.Context(), store); err != nil {
				require.NoError(t, err)
			}
			mustTxn(t, h.b, put("last", "after the scan"))
			counted, _ := sum(t, store)
			n, _ := stored(t, store)
			require.Equal(t, counted, n)
		})
	}
}

// settle waits until compaction has removed what it can.
func settle(t *testing.T, b *Replica) error {
	mustTxn(t, b, put("last", "value"))
	_, err := b.Compact(t.Context(), auth.System, b.Revision(), true)
	return err
}

// TestScanCountsWhileEverythingChanges: a table whose bytes were never counted is counted under load.
func TestScanCountsWhileEverythingChanges(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	for i := range 500 {
		mustTxn(t, b, put(fmt.Sprintf("k%02d/%d", i%40, i), string(make([]byte, i))))
	}
	closeReplica(t, b)
	forget(t, store)
	h := &bytesHistory{t: t, r: rand.New(rand.NewPCG(1, 2)), b: open(t, store, nil)}
	total, inUse := h.b.Space.Size()
	require.Equal(t, total, inUse)
	require.Positive(t, inUse, "the engine's own figure")
	ctx, cancel := context.WithCancel(t.Context())
	var scanning sync.WaitGroup
	var scans atomic.Int64
	awaitCount(t, store)
	scanning.Go(func() {
		for ctx.Err() == nil {
			if _, err := h.b.leading.Load().bytes.Scan(ctx, slowly{store}); err == nil {
				scans.Add(1)
			} else if ctx.Err() == nil {
				t.Error(err)
			}
		}
	})
	for n := 0; (n < 1000 || scans.Load() == 0) && !t.Failed(); n++ {
		h.step()
	}
	cancel()
	scanning.Wait()
	require.NoError(t, settle(t, h.b))
	counted, all := sum(t, store)
	n, known := stored(t, store)
	require.True(t, known)
	require.Equal(t, counted, n)
	require.NoError(t, h.b.Space.Refresh(t.Context()))
	_, inUse = h.b.Space.Size()
	require.Equal(t, all, inUse)
}

// slowly reads pages of few rows, so that a scan has many.
type slowly struct{ sqlstore.Store }

func (s slowly) Measure(ctx context.Context, q sqlstore.MeasureQuery) (sqlstore.Measured, error) {
	most := q.Limit
	q.Limit = min(most, 7)
	m, err := s.Store.Measure(ctx, q)
	if m.Rows == int64(q.Limit) {
		m.Rows = int64(most) // there may be more
	}
	return m, err
}

// TestScanEndsWithTheLeadership: it is abandoned in the middle.
func TestScanEndsWithTheLeadership(t *testing.T) {
	store := &stuckMeasure{Store: newStore(t)}
	b := open(t, store, nil)
	closeReplica(t, b)
	forget(t, store)
	store.stuck.Store(true)
	b = open(t, store, nil)
	eventually.True(t, "a scan is under way", func() bool { return store.waiting.Load() > 0 })
	mustTxn(t, b, put("k", "v"))
	started := time.Now()
	closeReplica(t, b)
	require.Less(t, time.Since(started), eventually.Deadline)
}

// stuckMeasure is a store that does not answer how many bytes counted rows take.
type stuckMeasure struct {
	sqlstore.Store
	stuck   atomic.Bool
	waiting atomic.Int64
}

func (s *stuckMeasure) Measure(ctx context.Context, q sqlstore.MeasureQuery) (sqlstore.Measured, error) {
	if s.stuck.Load() && coder.IsCounted(q.Start) {
		s.waiting.Add(1)
		<-ctx.Done()
		return sqlstore.Measured{}, ctx.Err()
	}
	return s.Store.Measure(ctx, q)
}

// TestSizeIsThatOfTheRowsOnEveryEngine: what status reports, and what the quota is compared with.
func TestSizeIsThatOfTheRowsOnEveryEngine(t *testing.T) {
	sqldbtest.OnEngines(t, func(t *testing.T, database func(testing.TB) string) {
		store := sqldbtest.Opener(engines.OpenDB).Store(t, database(t), sqlstore.Options{})
		h := &bytesHistory{t: t, r: rand.New(rand.NewPCG(3, 4)), b: open(t, store, nil)}
		rows := func() (n int64) {
			require.NoError(t, store.Database().SQL().QueryRowContext(t.Context(),
				"SELECT SUM(LENGTH(internal_key) + LENGTH(object_value)) FROM object").Scan(&n))
			return n
		}
		check := func() Status {
			t.Helper()
			var st Status
			want := int64(-1)
			for want != rows() { // the counts row may have been written in between
				want = rows()
				require.NoError(t, h.b.Space.Refresh(t.Context()))
				st = h.b.Status()
			}
			require.Equal(t, want, st.DBSizeInUse)
			if store.Info().Product == "SQLite" {
				require.Greater(t, st.DBSize, st.DBSizeInUse, "the size of the file")
			} else {
				require.Equal(t, st.DBSizeInUse, st.DBSize)
			}
			return st
		}
		check() // a new table
		for range 200 {
			h.step()
		}
		mustTxn(t, h.b, put("large", string(make([]byte, 100_000))))
		require.NoError(t, settle(t, h.b))
		check()
		closeReplica(t, h.b)
		h.b = open(t, store, func(c *Config) { c.QuotaBytes = rows() + 50_000 })
		check()
		_, err := h.b.Txn(t.Context(), auth.System, put("refused", string(make([]byte, 60_000))), true)
		require.ErrorIs(t, err, quota.ErrNoSpace)
		closeReplica(t, h.b)

		forget(t, store)
		h.b = open(t, store, nil)
		awaitCount(t, store)
		check()
	})
}
