package write

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/tso"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// testLeader is a leader that has what a Pipeline needs, and nothing else. It implements
// Leader, Leases and read.Node.
type testLeader struct {
	p         *Pipeline
	revisions *tso.Oracle
	view      *keyspace.View
	users     *auth.Rows
	leases    map[int64]coder.Lease
	token     coder.FenceToken
	compacted int64
	ended     chan struct{}
	refused   int
	reason    error
	verify    func(context.Context) error // nil: VerifyLeader returns reason
}

// lead returns a leader over store whose pipeline does not run.
func lead(t *testing.T, store sqlstore.Store, change ...func(*Config)) *testLeader {
	t.Helper()
	l := &testLeader{revisions: tso.New(1), users: auth.NewRows(), leases: make(map[int64]coder.Lease),
		ended: make(chan struct{}), compacted: -1}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	holder, err := fence.Acquire(t.Context(), fence.Config{
		Store: store, Log: log, Lease: fence.NewReadLease(true, false, nil),
		Verify: func(coder.FenceToken) error { return nil }, Metrics: fence.NewMetrics(prometheus.NewRegistry()),
	})
	require.NoError(t, err)
	l.view, err = keyspace.New(keyspace.Config{Budget: 1 << 20, Revision: 1})
	require.NoError(t, err)
	cfg := Config{
		Limits: Limits{
			QueueLength: 100, QueueBytes: 1 << 20, BatchRequests: 100, BatchRows: 1000, BatchBytes: 1 << 20, IndexCache: 10_000,
			TxnKeys: MaxTxnKeys, TxnBytes: 2 * MaxTxnBytes, CommitTimeout: time.Minute,
		},
		Store: store, Fence: holder, Count: quota.NewCount(holder.Value()), View: l.view, Revisions: l.revisions, Leader: l, Leases: l,
		Reader:  read.New(l, store, l.view, mvcc.NewTimeout(time.Minute), read.MaxSorted),
		Metrics: NewMetrics(prometheus.NewRegistry()), Log: log,
	}
	for _, f := range change {
		f(&cfg)
	}
	l.p, err = New(cfg)
	require.NoError(t, err)
	return l
}

func newStore(t *testing.T) sqlstore.Store {
	s := memstore.New()
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (l *testLeader) Ended() <-chan struct{}      { return l.ended }
func (l *testLeader) Lost() error                 { return l.reason }
func (l *testLeader) AuthRows() *auth.Rows        { return l.users }
func (l *testLeader) Seen(token coder.FenceToken) { l.token = token }
func (l *testLeader) Refused(error)               { l.refused++ }

func (l *testLeader) VerifyLeader(ctx context.Context) error {
	if l.verify != nil {
		return l.verify(ctx)
	}
	return l.reason
}

func (l *testLeader) ErrNotLeader() error {
	if l.reason != nil {
		return l.reason
	}
	return mvcc.ErrNotLeader
}

func (l *testLeader) End(cause error) error {
	if l.reason == nil {
		l.reason = fmt.Errorf("%w: %w", mvcc.ErrNotLeader, cause)
		close(l.ended)
	}
	return l.reason
}

func (l *testLeader) Publish(c Committed) error {
	if l.users != c.Auth { // clients read it at the same time
		l.users = c.Auth
	}
	l.view.Apply(c.Events)
	for _, f := range c.Then {
		f()
	}
	return l.revisions.Advance(c.Revision)
}

func (l *testLeader) Lease(id int64) (coder.Lease, bool) {
	row, ok := l.leases[id]
	return row, ok
}

func (l *testLeader) PolicyLease(*Tx, []byte) (int64, error) { return 0, nil }

func (l *testLeader) Revision() int64                            { return l.revisions.Visible() }
func (l *testLeader) CompactRevision() int64                     { return l.compacted }
func (l *testLeader) Mark(context.Context) (int64, error)        { return l.compacted, nil }
func (l *testLeader) Await(ctx context.Context, rev int64) error { return l.revisions.Wait(ctx, rev) }
func (l *testLeader) CountRange(bool)                            {}
func (l *testLeader) ReadRevision(context.Context, auth.Permit, bool) (int64, error) {
	return l.Revision(), nil
}

// together executes commands in as few commits as hold them.
func (l *testLeader) together(t *testing.T, commands ...Command) []error {
	t.Helper()
	requests := make([]Request, len(commands))
	for i, c := range commands {
		requests[i] = Request{As: auth.System, Command: c}
	}
	return l.p.ExecuteBatch(t.Context(), requests...)
}

// run runs the pipeline until stop is called.
func (l *testLeader) run(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); l.p.Run(ctx) }()
	return func() { cancel(); <-done }
}

// must executes transactions together, all of which succeed.
func (l *testLeader) must(t *testing.T, txns ...*mvcc.Txn) {
	t.Helper()
	commands := make([]Command, len(txns))
	for i, txn := range txns {
		commands[i] = NewTxnCommand(txn)
	}
	for i, err := range l.together(t, commands...) {
		require.NoError(t, err, "transaction %d", i)
	}
}

func all() mvcc.KeyRange { return mvcc.KeyRange{Key: []byte{0}, End: []byte{0}} }

func put(key, value string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte(value)}}}}
}

func del(key string) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte(key)}}}}}
}
