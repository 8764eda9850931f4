package lease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func TestSmallLeaseIsRevokedInOneRevision(t *testing.T) {
	l := lead(t, newStore(t))
	id := l.grant(7, 3600)
	l.attach("k/", revocationKeys, id)
	before := l.Revision()
	rev, err := l.revoke(id)
	require.NoError(t, err)
	require.Equal(t, before+1, rev)
	require.Equal(t, before+1, l.Revision())
	require.Empty(t, l.keys())
}

// TestRenewalDoesNotWaitForAllChunks checks that a renewal is refused once the first chunk is revoked, also by the next
// leader. The renewals of other leases wait for the answer.
func TestRenewalDoesNotWaitForAllChunks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore(t)
		l := idle(t, store)
		for _, err := range l.together(&grantCommand{l: l.lessor, row: coder.Lease{ID: 5, TTL: 60}},
			write.NewTxnCommand(putLeased("a", 5)), write.NewTxnCommand(putLeased("b", 5))) {
			require.NoError(t, err)
		}
		chunk := l.revokeCommand(5)
		chunk.keys.Cut(1)
		require.NoError(t, l.together(chunk)[0])
		for range 2 {
			began := time.Now()
			_, err := l.keepAlive(5)
			require.ErrorIs(t, err, mvcc.ErrLeaseNotFound)
			require.Zero(t, time.Since(began))
			require.Equal(t, "b", l.keys())
			l = idle(t, store)
		}
	})
}

func TestLargeLeaseIsRevokedInChunks(t *testing.T) {
	store := newStore(t)
	l := lead(t, store)
	id := l.grant(7, 3600)
	l.attach("k/", 2*revocationKeys+7, id)
	l.put("other", 0)
	before := l.Revision()
	rev, err := l.revoke(id)
	require.NoError(t, err)
	require.Equal(t, l.Revision(), rev, "the answer does not have the revision of the last chunk")
	require.Greater(t, rev, before+1)
	require.Equal(t, "other", l.keys())
	n := len(l.records(before))
	require.Equal(t, 2*revocationKeys+8, n)
	for r := before + 1; r <= rev; r++ {
		now := len(l.records(r))
		require.Less(t, now, n, "a revision without a change")
		require.LessOrEqual(t, n-now, revocationKeys, "too many keys in one revision")
		n = now
	}
	_, err = l.revoke(id)
	require.ErrorIs(t, err, mvcc.ErrLeaseNotFound)
	_, exists := leaseRow(t, store, id)
	require.False(t, exists)
	l.grant(id, 3600)
}

// A key that is attached after the last chunk was read would outlive the lease.
// The answer has a revision that can be read.
func TestRevocationInChunksIsAnsweredOnceVisible(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t, newStore(t))
		id := l.grant(7, 3600)
		l.attach("k/", revocationKeys+1, id)
		l.lag.Store(int64(time.Second))
		rev, err := l.revoke(id)
		require.NoError(t, err)
		require.Equal(t, l.Revision(), rev)
	})
}

func TestLeaseThatIsBeingRevokedTakesNoKeys(t *testing.T) {
	l := idle(t, newStore(t))
	for _, err := range l.together(&grantCommand{l: l.lessor, row: coder.Lease{ID: 5, TTL: 60}},
		write.NewTxnCommand(putLeased("a", 5)), write.NewTxnCommand(putLeased("b", 5))) {
		require.NoError(t, err)
	}
	chunk := l.revokeCommand(5)
	chunk.keys.Cut(1)
	outcomes := l.together(chunk, write.NewTxnCommand(putLeased("c", 5)))
	require.NoError(t, outcomes[0])
	require.ErrorIs(t, outcomes[1], mvcc.ErrLeaseNotFound, "in the batch of the first chunk")
	require.ErrorIs(t, l.together(write.NewTxnCommand(putLeased("c", 5)))[0], mvcc.ErrLeaseNotFound)
	require.Equal(t, "b", l.keys())
}

// TestLastChunkIsNoLargerThanOthers checks that the rest of a large lease is revoked in chunks
// even if a lease of that size would be revoked at once.
func TestLastChunkIsNoLargerThanOthers(t *testing.T) {
	l := lead(t, newStore(t))
	l.lessor.chunkSize.keys.Store(100)
	id := l.grant(7, 3600)
	l.attach("k/", revocationKeys+50, id)
	before := l.Revision()
	rev, err := l.revoke(id)
	require.NoError(t, err)
	n := revocationKeys + 50
	for r := before + 1; r <= rev; r++ {
		now := len(l.records(r))
		require.Less(t, n-now, revocationKeys/2)
		n = now
	}
	require.Zero(t, n)
}

func TestChunkSizesFollowTheDatabase(t *testing.T) {
	var p chunkSize
	for range 100 {
		p.learn(p.get(), time.Millisecond)
	}
	require.Equal(t, revocationKeys, p.get())
	p.learn(p.get(), time.Second)
	require.Equal(t, revocationKeys/2, p.get())
	p.learn(10, time.Millisecond) // too small to judge
	require.Equal(t, revocationKeys/2, p.get())
	for range 100 {
		p.learn(p.get(), time.Second)
	}
	require.Equal(t, minChunkKeys, p.get())
}

func TestNextLeaderContinuesRevocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty(t)
		l := lead(t, store)
		id := l.grant(7, 3600)
		l.attach("k/", 2*revocationKeys, id)
		var reads atomic.Int64
		store.onAttached(func(context.Context) error {
			if reads.Add(1) > 2 { // the first chunk reads twice
				return errors.New("made up")
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		revoked := make(chan error, 1)
		go func() {
			_, err := l.lessor.Revoke(ctx, auth.System, id)
			revoked <- err
		}()
		synctest.Wait()
		cancel()
		require.ErrorIs(t, <-revoked, context.Canceled)
		row, _ := leaseRow(t, store, id)
		require.True(t, row.Revoking)
		l.handOver()

		l = lead(t, store)
		require.NotEmpty(t, l.keys())
		_, err := l.pipeline.Txn(t.Context(), auth.System, putLeased("x", id))
		require.ErrorIs(t, err, mvcc.ErrLeaseNotFound, "a lease that is being revoked takes a key")
		_, err = l.lessor.Grant(t.Context(), auth.System, id, 60)
		require.ErrorIs(t, err, mvcc.ErrLeaseExists)
		require.Zero(t, l.ttl(id))
		renewed := make(chan error, 1)
		go func() {
			_, err := l.keepAlive(id)
			renewed <- err
		}()
		synctest.Wait()
		store.onAttached(nil)
		_, err = l.revoke(id)
		require.NoError(t, err)
		require.ErrorIs(t, <-renewed, mvcc.ErrLeaseNotFound, "a lease that is being revoked is renewed")
		require.Empty(t, l.keys())
	})
}

func TestFailedRevocationBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty(t)
		l := lead(t, store)
		var tries []time.Time
		store.onAttached(func(context.Context) error {
			tries = append(tries, time.Now())
			return errors.New("made up")
		})
		l.grant(7, 10)
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Greater(t, len(tries), 5)
		require.Less(t, len(tries), 20)
		for i := range 5 {
			require.GreaterOrEqual(t, tries[i+1].Sub(tries[i]), revoking.Min<<i/2)
		}
		store.onAttached(nil)
		_, err := l.keepAlive(7)
		require.ErrorIs(t, err, mvcc.ErrLeaseNotFound)
	})
}

// fullDisk is a store with a reserve of space.
type fullDisk struct {
	*faulty
	free atomic.Int64
}

func (s *fullDisk) FreeSpace(context.Context) (free, reserve int64, err error) {
	return s.free.Load(), 10, nil
}

// TestAlarmKeepsLeases checks that neither the time, nor a revocation that is under way when deletes begin to be
// refused, deletes keys. The lease ends afterwards.
func TestAlarmKeepsLeases(t *testing.T) {
	for _, why := range []error{quota.ErrCorrupt, quota.ErrNoSpace} {
		synctest.Test(t, func(t *testing.T) {
			store := &fullDisk{faulty: newFaulty(t)}
			store.free.Store(100)
			var cfg Config
			var reads atomic.Int64
			store.onAttached(func(context.Context) error { reads.Add(1); return nil })
			l := lead(t, store, func(c *Config) { cfg = *c })
			l.grant(7, 10)
			l.put("k", 7)
			begun := l.revokeCommand(7)
			before := reads.Load()
			alarm := coder.EncodeAlarmKey(1, quota.AlarmCorrupt)
			if errors.Is(why, quota.ErrNoSpace) {
				store.free.Store(1)
			} else {
				b := store.BeginBatchWrite()
				b.Put(alarm, coder.Empty())
				require.NoError(t, b.Commit(t.Context()))
			}
			require.NoError(t, cfg.Alarms.Load(t.Context()))
			require.NoError(t, cfg.Space.Refresh(t.Context()))
			require.ErrorIs(t, l.pipeline.Submit(t.Context(), auth.System, begun), why)
			_, err := l.revoke(7)
			require.ErrorIs(t, err, why)
			time.Sleep(time.Minute)
			require.Equal(t, "k", l.keys())
			require.Equal(t, before, reads.Load(), "keys were read in vain")
			require.Zero(t, testutil.ToFloat64(cfg.Metrics.revocationErrors))
			st, err := l.lessor.TimeToLive(t.Context(), auth.System, 7, true)
			require.NoError(t, err)
			require.Equal(t, Status{ID: 7, GrantedTTL: 10, TTL: -50, Keys: [][]byte{[]byte("k")}}, st, "as in etcd")

			b := store.BeginBatchWrite()
			b.Del(alarm)
			require.NoError(t, b.Commit(t.Context()))
			store.free.Store(100)
			require.NoError(t, cfg.Alarms.Load(t.Context()))
			require.NoError(t, cfg.Space.Refresh(t.Context()))
			time.Sleep(revoking.Max)
			synctest.Wait()
			require.Empty(t, l.keys())
		})
	}
}

// TestRegrantedLeaseIsNotRevokedAsExpired lets a client revoke an expired lease and grant its
// id again before the lessor revokes the expired lease.
func TestRegrantedLeaseIsNotRevokedAsExpired(t *testing.T) {
	for _, together := range []bool{false, true} {
		l := idle(t, newStore(t))
		granting := func() write.Command { return &grantCommand{l: l.lessor, row: coder.Lease{ID: 7, TTL: 60}} }
		l.together(granting())
		expired, _, _ := l.lessor.popDue(time.Now().Add(61 * time.Second))
		require.Len(t, expired, 1)
		c := &revokeCommand{l: l.lessor, id: 7, expired: expired[0], keys: l.revokeCommand(7).keys}
		if together {
			for i, err := range l.together(l.revokeCommand(7), granting(), c) {
				require.Equal(t, i == 2, err != nil)
			}
		} else {
			l.together(l.revokeCommand(7), granting())
			require.ErrorIs(t, l.together(c)[0], mvcc.ErrLeaseNotFound)
		}
		require.NotEqualValues(t, -1, l.ttl(7), "the new lease was revoked")
	}
}

// sealed is a store that panics when it is read while Store is nil.
type sealed struct {
	sqlstore.Store
	open sqlstore.Store
}

func (s *sealed) BeginBatchWrite() sqlstore.BatchWrite { return s.open.BeginBatchWrite() }

func TestRevokingReadsNothingOnTheSequencer(t *testing.T) {
	store := newStore(t)
	s := &sealed{Store: store, open: store}
	l := idle(t, s)
	l.together(&grantCommand{l: l.lessor, row: coder.Lease{ID: 7, TTL: 60}})
	txn := func(t *mvcc.Txn) write.Command { return write.NewTxnCommand(t) }
	for i := range 300 {
		l.together(txn(putLeased(fmt.Sprintf("k%03d", i), 7)))
	}
	c := l.revokeCommand(7)
	// The revocation must include the changes after the preparation.
	l.together(txn(putLeased("new", 7)), txn(del("k001")), txn(putLeased("k002", 0)))
	l.together(txn(putLeased("k002", 0)), txn(putLeased("k003", 7)))
	before := l.Revision()
	s.Store = nil
	require.NoError(t, l.together(c)[0])
	s.Store = store
	require.Equal(t, before+1, l.Revision())
	require.Equal(t, "k002", l.keys())
	lo, hi := coder.AttachmentBounds(7)
	for key, err := range write.Attached(t.Context(), store, lo, hi, 0) {
		require.NoError(t, err)
		t.Errorf("%s is still attached", key)
	}
}

// TestSmallLeasesExpireNextToLargeOne checks that small leases do not wait for all chunks of a
// large one.
func TestSmallLeasesExpireNextToLargeOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := lead(t, newStore(t))
		const large = 7
		l.grant(large, 10)
		l.attach("large/", 3*revocationKeys, large)
		time.Sleep(time.Millisecond) // the large one is due first
		for id := int64(100); id < 400; id++ {
			l.grant(id, 10)
		}
		var mu sync.Mutex
		var order []int64
		var ends sync.WaitGroup
		l.lessor.mu.Lock()
		for id, le := range l.lessor.leases {
			ends.Go(func() {
				<-le.ended
				mu.Lock()
				defer mu.Unlock()
				order = append(order, id)
			})
		}
		l.lessor.mu.Unlock()
		ends.Wait()
		require.Len(t, order, 301)
		require.Empty(t, l.keys())
		require.NotEqual(t, large, order[0], "small leases waited for all chunks of a large one")
	})
}

// TestCheckpointsDoNotWaitForRevocations lets more leases expire than can be revoked at a time,
// with a database that does not answer.
func TestCheckpointsDoNotWaitForRevocations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newFaulty(t)
		l := lead(t, store, func(c *Config) { c.RequestTimeout = time.Hour })
		hung := 0
		store.onAttached(func(ctx context.Context) error {
			store.mu.Lock()
			hung++
			store.mu.Unlock()
			<-ctx.Done()
			return ctx.Err()
		})
		for id := int64(100); id < 100+2*expiryParallel; id++ {
			l.grant(id, 10)
		}
		l.grant(7, 100)
		time.Sleep(49 * time.Second)
		synctest.Wait()
		require.Equal(t, expiryParallel, hung)
		row, _ := leaseRow(t, store, 7)
		require.Zero(t, row.Remaining)
		time.Sleep(time.Second)
		synctest.Wait()
		row, _ = leaseRow(t, store, 7)
		require.EqualValues(t, 50, row.Remaining)
	})
}
