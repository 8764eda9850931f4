package lease

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
	"github.com/sqlbrain/sqlbrain/tso"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// testLeader is a leader that consists of a Lessor and its pipeline. It implements Leader,
// write.Leader and read.Node.
type testLeader struct {
	t         *testing.T
	lessor    *Lessor
	pipeline  *write.Pipeline
	reader    *read.Reader
	revisions *tso.Oracle
	view      *keyspace.View
	users     *auth.Rows
	ended     chan struct{}
	end       sync.Once
	lag       atomic.Int64 // a time.Duration between what is done on a commit and its visibility

	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// idle returns a leader over store that runs neither the pipeline nor the lessor. The clocks of
// leases have started.
func idle(t *testing.T, store sqlstore.Store, change ...func(*Config)) *testLeader {
	t.Helper()
	l := &testLeader{t: t, users: auth.NewRows(), ended: make(chan struct{})}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError}))
	holder, err := fence.Acquire(t.Context(), fence.Config{
		Store: store, Log: log, Lease: fence.NewReadLease(true, false, nil),
		Verify: func(coder.FenceToken) error { return nil }, Metrics: fence.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	rev := holder.Value().Revision
	l.revisions = tso.New(rev)
	l.view, err = keyspace.New(keyspace.Config{Budget: 1 << 20, Revision: rev})
	require.NoError(t, err)
	l.reader = read.New(l, store, l.view, mvcc.NewTimeout(time.Minute), read.MaxSorted)
	alarms := quota.NewAlarms(store, nil, log)
	cfg := Config{
		Store: store, Leader: l, Alarms: alarms, Space: quota.NewSpace(store, nil, alarms, 1, 0, log), MinTTL: 2,
		RequestTimeout: time.Minute,
		Metrics:        NewMetrics(prometheus.NewRegistry()), Log: log,
	}
	for _, f := range change {
		f(&cfg)
	}
	l.lessor = New(cfg)
	l.pipeline, err = write.New(write.Config{
		Limits: write.Limits{
			QueueLength: 1000, QueueBytes: 1 << 20, BatchRequests: 1000, BatchRows: 10_000, BatchBytes: 4 << 20, IndexCache: 100,
			TxnKeys: write.MaxTxnKeys, TxnBytes: write.MaxTxnBytes, CommitTimeout: time.Minute,
		},
		Store: store, Fence: holder, Count: quota.NewCount(holder.Value()), Reader: l.reader, View: l.view,
		Revisions: l.revisions, Leader: l, Leases: l.lessor,
		Metrics: write.NewMetrics(prometheus.NewRegistry()), Log: log,
	})
	require.NoError(t, err)
	require.NoError(t, l.lessor.Load(t.Context(), store, l.pipeline))
	l.lessor.Start()
	return l
}

// lead returns a leader over store that runs until crash or handOver, or the end of the test.
func lead(t *testing.T, store sqlstore.Store, change ...func(*Config)) *testLeader {
	t.Helper()
	l := idle(t, store, change...)
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.workers.Go(func() { l.pipeline.Run(ctx) })
	l.workers.Go(func() { l.lessor.Run(ctx) })
	t.Cleanup(l.crash)
	return l
}

// crash ends the leader without a handover.
func (l *testLeader) crash() {
	l.cancel()
	l.workers.Wait()
}

// handOver ends the leader in order, as when it stops on request.
func (l *testLeader) handOver() {
	l.t.Helper()
	require.NoError(l.t, l.lessor.HandOver(l.t.Context()))
	l.pipeline.Drain()
	<-l.pipeline.Done()
	l.crash()
}

func (l *testLeader) VerifyLeader(context.Context) error { return l.Lost() }
func (l *testLeader) ErrNotLeader() error                { return mvcc.ErrNotLeader }
func (l *testLeader) Refused(error)                      {}
func (l *testLeader) Ended() <-chan struct{}             { return l.ended }
func (l *testLeader) AuthRows() *auth.Rows               { return l.users }
func (l *testLeader) Seen(coder.FenceToken)              {}

func (l *testLeader) Lost() error {
	select {
	case <-l.ended:
		return mvcc.ErrNotLeader
	default:
		return nil
	}
}

func (l *testLeader) End(cause error) error {
	l.end.Do(func() { close(l.ended) })
	return fmt.Errorf("%w: %w", mvcc.ErrNotLeader, cause)
}

func (l *testLeader) Publish(c write.Committed) error {
	l.view.Apply(c.Events)
	for _, f := range c.Then {
		f()
	}
	time.Sleep(time.Duration(l.lag.Load()))
	return l.revisions.Advance(c.Revision)
}

func (l *testLeader) Revision() int64                            { return l.revisions.Visible() }
func (l *testLeader) CompactRevision() int64                     { return -1 }
func (l *testLeader) Mark(context.Context) (int64, error)        { return -1, nil }
func (l *testLeader) Await(ctx context.Context, rev int64) error { return l.revisions.Wait(ctx, rev) }
func (l *testLeader) CountRange(bool)                            {}
func (l *testLeader) ReadRevision(context.Context, auth.Permit, bool) (int64, error) {
	return l.Revision(), nil
}

// together executes commands of an idle leader in as few commits as possible.
func (l *testLeader) together(commands ...write.Command) []error {
	l.t.Helper()
	return l.permitted(auth.System, commands...)
}

// permitted is together for commands that as permits.
func (l *testLeader) permitted(as auth.Permit, commands ...write.Command) []error {
	l.t.Helper()
	requests := make([]write.Request, len(commands))
	for i, c := range commands {
		requests[i] = write.Request{As: as, Command: c}
	}
	return l.pipeline.ExecuteBatch(l.t.Context(), requests...)
}

// grant grants a lease; id 0 lets the lessor choose.
func (l *testLeader) grant(id, ttl int64) int64 {
	l.t.Helper()
	st, err := l.lessor.Grant(l.t.Context(), auth.System, id, ttl)
	require.NoError(l.t, err)
	return st.ID
}

// keepAlive renews a lease.
func (l *testLeader) keepAlive(id int64) (ttl int64, err error) {
	return l.lessor.KeepAlive(l.t.Context(), auth.System, id)
}

// revoke revokes a lease.
func (l *testLeader) revoke(id int64) (revision int64, err error) {
	return l.lessor.Revoke(l.t.Context(), auth.System, id)
}

// ttl returns how many seconds a lease has left, -1 if it does not exist.
func (l *testLeader) ttl(id int64) int64 {
	l.t.Helper()
	st, err := l.lessor.TimeToLive(l.t.Context(), auth.System, id, false)
	require.NoError(l.t, err)
	return st.TTL
}

// put puts a key with a lease; 0 is none.
func (l *testLeader) put(key string, lease int64) {
	l.t.Helper()
	_, err := l.pipeline.Txn(l.t.Context(), auth.System, putLeased(key, lease))
	require.NoError(l.t, err)
}

// attach puts keys with a lease, 500 in a transaction.
func (l *testLeader) attach(prefix string, keys int, lease int64) {
	l.t.Helper()
	for i := 0; i < keys; i += 500 {
		txn := &mvcc.Txn{}
		for j := i; j < min(i+500, keys); j++ {
			txn.Then = append(txn.Then, putLeased(fmt.Sprintf("%s%06d", prefix, j), lease).Then...)
		}
		_, err := l.pipeline.Txn(l.t.Context(), auth.System, txn)
		require.NoError(l.t, err)
	}
}

// records returns all keys that exist at a revision.
func (l *testLeader) records(rev int64) []*coder.Record {
	l.t.Helper()
	res, err := l.reader.At(l.Revision()).RangeAt(l.t.Context(),
		&mvcc.RangeRequest{KeyRange: mvcc.KeyRange{Key: []byte{0}, End: []byte{0}}, Revision: rev})
	require.NoError(l.t, err)
	return res.Records
}

// keys returns the names of all keys, separated by spaces.
func (l *testLeader) keys() string {
	l.t.Helper()
	var names []string
	for _, r := range l.records(l.Revision()) {
		names = append(names, string(r.Key))
	}
	return strings.Join(names, " ")
}

// revokeCommand returns the prepared command that revokes a lease in one revision.
func (l *testLeader) revokeCommand(id int64) *revokeCommand {
	l.t.Helper()
	keys, err := l.pipeline.PrefetchLease(l.t.Context(), id, nil, revocationKeys)
	require.NoError(l.t, err)
	l.t.Cleanup(func() { l.pipeline.Release(keys) })
	return &revokeCommand{l: l.lessor, id: id, keys: keys}
}

func putLeased(key string, lease int64) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}}}}
}

func del(key string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}}}}}
}

func newStore(t *testing.T) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// leaseRow returns what the table holds of a lease, false if it holds nothing.
func leaseRow(t *testing.T, store sqlstore.Store, id int64) (row coder.Lease, ok bool) {
	t.Helper()
	raw, err := store.Get(context.Background(), coder.EncodeLeaseKey(id))
	if errors.Is(err, sqlstore.ErrKeyNotFound) {
		return coder.Lease{}, false
	}
	require.NoError(t, err)
	row, err = coder.DecodeLease(coder.EncodeLeaseKey(id), raw)
	require.NoError(t, err)
	return row, true
}

// faulty is a store whose commits, and iterations over attachments, pass through functions.
type faulty struct {
	sqlstore.Store
	mu       sync.Mutex
	commit   func(ctx context.Context, b sqlstore.BatchWrite) error
	attached func(ctx context.Context) error // an error fails the iteration
}

func newFaulty(t *testing.T) *faulty { return &faulty{Store: newStore(t)} }

// onCommit makes commits pass through f; nil: they work.
func (s *faulty) onCommit(f func(ctx context.Context, b sqlstore.BatchWrite) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.commit = f
}

// onAttached makes iterations over attachments pass through f; nil: they work.
func (s *faulty) onAttached(f func(ctx context.Context) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached = f
}

// holdCommits delays the answers of commits until release is called, which may be called
// twice.
func (s *faulty) holdCommits() (release func()) {
	hold := make(chan struct{})
	s.onCommit(func(ctx context.Context, b sqlstore.BatchWrite) error {
		err := b.Commit(ctx)
		<-hold
		return err
	})
	return sync.OnceFunc(func() { close(hold) })
}

func (s *faulty) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		s.mu.Lock()
		commit := s.commit
		s.mu.Unlock()
		if commit == nil {
			return b.BatchWrite.Commit(ctx)
		}
		return commit(ctx, b.BatchWrite)
	})
}

func (s *faulty) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	s.mu.Lock()
	attached := s.attached
	s.mu.Unlock()
	if lo, _ := coder.AllAttachmentBounds(); attached != nil && strings.HasPrefix(string(r.Start), string(lo)) {
		if err := attached(ctx); err != nil {
			return func(yield func(sqlstore.Row, error) bool) { yield(sqlstore.Row{}, err) }
		}
	}
	return s.Store.Iter(ctx, r)
}
