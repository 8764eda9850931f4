package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// attach puts keys with a lease, 500 in a transaction.
func attach(t testing.TB, b *Backend, prefix string, keys int, lease int64) {
	t.Helper()
	for i := 0; i < keys; i += 500 {
		txn := &Txn{}
		for j := i; j < min(i+500, keys); j++ {
			txn.Then = append(txn.Then, putLeased(fmt.Sprintf("%s%06d", prefix, j), lease).Then...)
		}
		mustTxn(t, b, txn)
	}
}

func TestALeaseUpToTheBoundIsRevokedInOneRevision(t *testing.T) {
	b := open(t, newStore(t), nil)
	id := mustGrant(t, b, 7, 3600)
	attach(t, b, "k/", RevocationKeys, id)
	before := b.Revision()
	rev, err := b.LeaseRevoke(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, before+1, rev)
	require.Equal(t, before+1, b.Revision())
	require.Zero(t, mustRange(t, b, &RangeRequest{KeyRange: all()}).Count)
}

func TestALeaseBeyondTheBoundIsRevokedInPieces(t *testing.T) {
	store := newStore(t)
	b := open(t, store, func(c *Config) { c.IndexCache = 100 })
	id := mustGrant(t, b, 7, 3600)
	attach(t, b, "k/", 2*RevocationKeys+7, id)
	mustTxn(t, b, put("other", "x"))
	before := b.Revision()
	rev, err := b.LeaseRevoke(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, b.Revision(), rev, "the answer names another revision than the last piece's")
	require.Greater(t, rev, before+1)
	left := mustRange(t, b, &RangeRequest{KeyRange: all()})
	require.EqualValues(t, 1, left.Count)
	n := mustRange(t, b, &RangeRequest{KeyRange: all(), Revision: before}).Count
	require.EqualValues(t, 2*RevocationKeys+8, n)
	for r := before + 1; r <= rev; r++ {
		now := mustRange(t, b, &RangeRequest{KeyRange: all(), Revision: r, CountOnly: true}).Count
		require.Less(t, now, n, "a revision without a change")
		require.LessOrEqual(t, n-now, int64(RevocationKeys), "too many keys in one revision")
		n = now
	}
	_, err = b.LeaseRevoke(t.Context(), id)
	require.ErrorIs(t, err, ErrLeaseNotFound)
	_, err = store.Get(t.Context(), coder.EncodeLeaseKey(id))
	require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)
	mustGrant(t, b, id, 3600)
}

// TestTheLastPieceIsNoLargerThanOthers: what is left of a large lease is not revoked at
// once because it would have been, had it been all.
func TestTheLastPieceIsNoLargerThanOthers(t *testing.T) {
	b := open(t, newStore(t), nil)
	b.leading.Load().pieceSize.keys.Store(100)
	id := mustGrant(t, b, 7, 3600)
	attach(t, b, "k/", RevocationKeys+50, id)
	before := b.Revision()
	rev, err := b.LeaseRevoke(t.Context(), id)
	require.NoError(t, err)
	n := int64(RevocationKeys + 50)
	for r := before + 1; r <= rev; r++ {
		now := mustRange(t, b, &RangeRequest{KeyRange: all(), Revision: r, CountOnly: true}).Count
		require.Less(t, n-now, int64(RevocationKeys/2))
		n = now
	}
	require.Zero(t, n)
}

// gated is a store whose iterations over attachments fail once so many are made.
type gated struct {
	sqlstore.Store
	left    atomic.Int64
	failing chan struct{} // closed when one has failed
	once    sync.Once
}

func newGated(t *testing.T) *gated {
	g := &gated{Store: newStore(t), failing: make(chan struct{})}
	g.left.Store(1 << 30)
	return g
}

func (g *gated) Iter(ctx context.Context, r sqlstore.Range) sqlstore.Iter {
	if lo, _ := coder.AllAttachmentBounds(); strings.HasPrefix(string(r.Start), string(lo)) && g.left.Add(-1) < 0 {
		g.once.Do(func() { close(g.failing) })
		gone, cancel := context.WithCancel(ctx)
		cancel()
		return g.Store.Iter(gone, r)
	}
	return g.Store.Iter(ctx, r)
}

func TestARevocationGoesOnUnderTheNextLeader(t *testing.T) {
	g := newGated(t)
	b := open(t, g, nil)
	id := mustGrant(t, b, 7, 3600)
	attach(t, b, "k/", 2*RevocationKeys, id)
	g.left.Store(2) // those of the first piece
	ctx, cancel := context.WithCancel(t.Context())
	revoked := make(chan error, 1)
	go func() {
		_, err := b.LeaseRevoke(ctx, id)
		revoked <- err
	}()
	<-g.failing
	cancel()
	require.ErrorIs(t, <-revoked, context.Canceled)
	raw, err := g.Store.Get(t.Context(), coder.EncodeLeaseKey(id))
	require.NoError(t, err)
	row, err := coder.DecodeLease(coder.EncodeLeaseKey(id), raw)
	require.NoError(t, err)
	require.True(t, row.Revoking)
	closeBackend(t, b)

	b = open(t, g, nil)
	require.NotZero(t, mustRange(t, b, &RangeRequest{KeyRange: all()}).Count)
	_, err = b.Txn(t.Context(), putLeased("x", id), true)
	require.ErrorIs(t, err, ErrLeaseNotFound, "a lease on its way out takes a key")
	_, err = b.LeaseGrant(t.Context(), id, 60)
	require.ErrorIs(t, err, ErrLeaseExists)
	st, err := b.LeaseTimeToLive(t.Context(), id, false)
	require.NoError(t, err)
	require.Zero(t, st.TTL)
	renewed := make(chan error, 1)
	go func() {
		_, err := b.LeaseKeepAlive(t.Context(), id)
		renewed <- err
	}()
	g.left.Store(1 << 30)
	_, err = b.LeaseRevoke(t.Context(), id)
	if !errors.Is(err, ErrLeaseNotFound) { // it may be gone by now
		require.NoError(t, err)
	}
	require.ErrorIs(t, <-renewed, ErrLeaseNotFound, "a lease on its way out is renewed")
	require.Zero(t, mustRange(t, b, &RangeRequest{KeyRange: all()}).Count)
}

func TestAFailedRevocationBacksOff(t *testing.T) {
	g := newGated(t)
	b := open(t, g, nil)
	l := b.leading.Load()
	id := mustGrant(t, b, 7, 3600)
	g.left.Store(0)
	var last time.Duration
	for i := range 5 {
		l.lessor.mu.Lock()
		le := l.lessor.leases[id]
		le.expiring = true
		l.lessor.mu.Unlock()
		before := time.Now()
		l.lessor.expire(t.Context(), id)
		l.lessor.mu.Lock()
		pause, failures := le.due.Sub(before), le.failures
		le.due = time.Now().Add(time.Hour) // not by itself
		l.lessor.schedule(le, time.Now())
		l.lessor.mu.Unlock()
		require.Equal(t, i+1, failures)
		require.GreaterOrEqual(t, pause, minRevocationPause<<i/2)
		last = pause
	}
	require.Greater(t, last, minRevocationPause)
	for range 100 {
		require.LessOrEqual(t, revocationPause(1000), maxRevocationPause)
	}
}

// onlyPrepared is a store that fails every read while it is closed for reading.
type onlyPrepared struct {
	sqlstore.Store
	closed atomic.Bool
	t      testing.TB
}

func (s *onlyPrepared) check(what string) {
	if s.closed.Load() {
		s.t.Errorf("the sequencer read the table: %s", what)
	}
}

func (s *onlyPrepared) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.check("get")
	return s.Store.Get(ctx, key)
}

func (s *onlyPrepared) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	s.check("multi-get")
	return s.Store.MultiGet(ctx, keys)
}

func (s *onlyPrepared) Iter(ctx context.Context, r sqlstore.Range) sqlstore.Iter {
	s.check("iteration")
	return s.Store.Iter(ctx, r)
}

func (s *onlyPrepared) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	s.check("list")
	return s.Store.List(ctx, q)
}

func (s *onlyPrepared) Count(ctx context.Context, start, end []byte, rev int64) (int64, int64, error) {
	s.check("count")
	return s.Store.Count(ctx, start, end, rev)
}

func (s *onlyPrepared) Skip(ctx context.Context, start, end []byte, n int) ([]byte, error) {
	s.check("skip")
	return s.Store.Skip(ctx, start, end, n)
}

// idleOn is idle on a store that tells whether evaluation reads it, with caches that
// are too small for everything.
func idleOn(t *testing.T) (*leader, *onlyPrepared) {
	t.Helper()
	s := &onlyPrepared{Store: newStore(t), t: t}
	b, err := prepare(t.Context(), s, Config{Logger: testLogger(t), Exclusive: true, IndexCache: 10, RecordCache: -1})
	require.NoError(t, err)
	t.Cleanup(func() { b.hub.Close(); b.metrics.unregister() })
	l, err := b.takeOver(t.Context())
	require.NoError(t, err)
	b.leading.Store(l)
	return l, s
}

// run evaluates and commits a command, while the store is not to be read.
func (s *onlyPrepared) run(l *leader, cmd command) error {
	s.t.Helper()
	s.closed.Store(true)
	defer s.closed.Store(false)
	r := &request{cmd: cmd, done: make(chan error, 1)}
	l.runBatch(s.t.Context(), []*request{r})
	return <-r.done
}

// prepared returns the command of a transaction with what it reads ahead.
func preparedTxn(t *testing.T, l *leader, txn *Txn) *txnCommand {
	t.Helper()
	c := newTxnCommand(txn)
	var err error
	c.ahead, err = l.prepare(t.Context(), txn)
	require.NoError(t, err)
	t.Cleanup(func() { l.settle(c.ahead) })
	return c
}

func TestRevokingReadsNothingOnTheSequencer(t *testing.T) {
	l, s := idleOn(t)
	runTogether(t, l, &grantCommand{l: l, row: coder.Lease{ID: 7, TTL: 60}})
	for i := range 300 {
		runTogether(t, l, newTxnCommand(putLeased(fmt.Sprintf("k%03d", i), 7)))
	}
	c := revokeOf(t, l, 7)
	// What happens in between counts.
	runTogether(t, l, newTxnCommand(putLeased("new", 7)), newTxnCommand(del("k001")), newTxnCommand(put("k002", "detached")))
	runTogether(t, l, newTxnCommand(put("k002", "detached again")), newTxnCommand(putLeased("k003", 7)))
	before := l.Revision()
	require.NoError(t, s.run(l, c))
	require.Equal(t, before+1, l.Revision())
	left := mustRange(t, l.Backend, &RangeRequest{KeyRange: all()})
	require.EqualValues(t, 1, left.Count)
	require.Equal(t, "k002", string(left.Records[0].Key))
	keys, err := l.attachedKeys(t.Context(), 7)
	require.NoError(t, err)
	require.Empty(t, keys)
}

// TestManyLeasesExpireBesideALargeOne: a large lease must not keep others waiting for
// all of its pieces.
func TestManyLeasesExpireBesideALargeOne(t *testing.T) {
	b := open(t, newStore(t), nil)
	l := b.leading.Load()
	large := mustGrant(t, b, 7, 3600)
	attach(t, b, "large/", 3*RevocationKeys, large)
	var order []int64
	var mu sync.Mutex
	done := make(chan struct{})
	for id := int64(100); id < 400; id++ {
		mustGrant(t, b, id, 3600)
	}
	l.lessor.mu.Lock()
	now := time.Now()
	for id, le := range l.lessor.leases {
		le.expiry = now
		if id == large {
			le.expiry = now.Add(-time.Second) // the first one due
		}
		ended := le.ended
		go func() {
			<-ended
			mu.Lock()
			defer mu.Unlock()
			if order = append(order, id); len(order) == 301 {
				close(done)
			}
		}()
	}
	for _, le := range l.lessor.leases {
		l.lessor.schedule(le, now)
	}
	l.lessor.mu.Unlock()
	<-done
	require.Zero(t, mustRange(t, b, &RangeRequest{KeyRange: all()}).Count)
	require.NotEqual(t, large, order[0], "small leases waited for all pieces of a large one")
}

// hanging is a store whose iterations over attachments do not return until their
// context ends.
type hanging struct {
	sqlstore.Store
	hung chan struct{} // receives one of each
}

func (h *hanging) Iter(ctx context.Context, r sqlstore.Range) sqlstore.Iter {
	if lo, _ := coder.AllAttachmentBounds(); strings.HasPrefix(string(r.Start), string(lo)) {
		h.hung <- struct{}{}
		<-ctx.Done()
	}
	return h.Store.Iter(ctx, r)
}

// TestCheckpointsDoNotWaitForRevocations: however many leases expire, and however slow
// the database revokes them.
func TestCheckpointsDoNotWaitForRevocations(t *testing.T) {
	h := &hanging{Store: newStore(t), hung: make(chan struct{}, 2*expiryParallel)}
	b := open(t, h, func(c *Config) { c.RequestTimeout = time.Minute })
	l := b.leading.Load().lessor
	for id := int64(100); id < 100+2*expiryParallel; id++ {
		mustGrant(t, b, id, 3600)
	}
	l.mu.Lock()
	for _, le := range l.leases {
		le.expiry = time.Now()
		l.schedule(le, le.expiry)
	}
	l.mu.Unlock()
	for range expiryParallel {
		<-h.hung
	}
	mustGrant(t, b, 7, 3600)
	l.mu.Lock()
	le := l.leases[7]
	le.expiry, le.persisted, le.due = time.Now().Add(20*time.Minute), 3600, time.Now()
	l.enqueue(le)
	l.mu.Unlock()
	require.Eventually(t, func() bool {
		return leaseRow(t, h.Store, 7).Remaining > 0
	}, time.Minute, time.Millisecond)
}

func TestAPolicyLeaseTakesABoundedNumberOfKeys(t *testing.T) {
	b := open(t, newStore(t), func(c *Config) {
		c.TTLPolicies = []TTLPolicy{{Prefix: []byte("/events/"), TTL: time.Hour}}
	})
	attach(t, b, "/events/", 2*policyLeaseKeys+1, 0)
	held := make(map[int64]int)
	for _, r := range mustRange(t, b, &RangeRequest{KeyRange: all()}).Records {
		held[r.Lease]++
	}
	require.Len(t, held, 3)
	for id, n := range held {
		require.NotZero(t, id)
		require.LessOrEqual(t, n, policyLeaseKeys)
	}
}
