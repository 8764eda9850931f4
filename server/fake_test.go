package server

import (
	"cmp"
	"context"
	"sync"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/watch"
)

// fakeNode answers with what a test put in it, and keeps what it was asked.
type fakeNode struct {
	// For the methods that no test calls.
	etcd.Exporter
	guard.Users
	guard.Attachments

	id       uint64 // 0: fakeMember
	revision int64  // 0: fakeRevision

	mu      sync.Mutex
	serving error
	err     error // of every call
	alarms  []quota.Alarm
	noQuota bool
	health  fakeHealth
	users   *auth.Rows // nil: noUsers

	rangeResult mvcc.RangeResult
	txnResult   mvcc.TxnResult
	lease       lease.Status
	leases      []int64

	gotAuth *auth.Change

	// hold, if set, is waited for by reads.
	hold chan struct{}
	// onRange, if set, is called by reads.
	onRange func(context.Context)
	// These, if set, are called before a method answers, or in its place.
	onApply   func(context.Context, replica.Update) error
	onTxn     func(context.Context) error
	onCompact func(context.Context)
	onRenew   func(id int64) (ttl int64, err error)
	onLookUp  func() error // of a lease
}

// nodeOfFake returns the parts of f, whose watch stream is stream; nil: one that is closed.
func nodeOfFake(f *fakeNode, stream etcd.WatchStream) node {
	if stream == nil {
		closed := newFakeStream()
		closed.Close()
		stream = closed
	}
	return node{
		Components: etcd.Components{Node: f, Reader: f, Writer: f, Lessor: func() (etcd.Lessor, error) { return f, nil },
			Alarms: f, Exporter: f, Space: f, Watch: func() etcd.WatchStream { return stream }},
		state: f, probe: f, users: f, attachments: f,
	}
}

func (f *fakeNode) AwaitApplied(ctx context.Context, u replica.Update) error {
	if f.onApply == nil {
		return nil
	}
	return f.onApply(ctx, u)
}

const (
	fakeCluster  = uint64(11)
	fakeMember   = uint64(22)
	fakeTerm     = int64(3)
	fakeRevision = int64(100)
)

func (f *fakeNode) ClusterID() uint64 { return fakeCluster }
func (f *fakeNode) MemberID() uint64  { return cmp.Or(f.id, fakeMember) }
func (f *fakeNode) Revision() int64   { return cmp.Or(f.revision, fakeRevision) }

func (f *fakeNode) Status() replica.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	leader := fakeMember
	if f.serving != nil {
		leader = 0
	}
	quotaBytes := int64(1 << 30)
	if f.noQuota {
		quotaBytes = 0
	}
	return replica.Status{
		Revision: fakeRevision, CompactRevision: -1, Term: fakeTerm, Sequence: 7,
		DBSize: 4096, DBSizeInUse: 2048, QuotaBytes: quotaBytes, Leader: leader, NotServing: f.serving,
	}
}

func (f *fakeNode) setServing(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.serving = err
}

func (f *fakeNode) setErr(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeNode) failure() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeNode) Range(ctx context.Context, _ auth.Permit, r *mvcc.RangeRequest, _ bool) (*mvcc.RangeResult, error) {
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if f.onRange != nil && string(r.Key) != "health" { // else the node checks itself, at any time
		f.onRange(ctx)
	}
	if err := f.failure(); err != nil {
		return nil, err
	}
	return &f.rangeResult, nil
}

func (f *fakeNode) RangeStream(context.Context, auth.Permit, *mvcc.RangeRequest, bool, int,
	func(*mvcc.RangeResult, bool) error) error {
	return f.failure()
}

func (f *fakeNode) Txn(ctx context.Context, _ auth.Permit, _ *mvcc.Txn, _ bool) (*mvcc.TxnResult, error) {
	if f.onTxn != nil {
		if err := f.onTxn(ctx); err != nil {
			return nil, err
		}
	}
	if err := f.failure(); err != nil {
		return nil, err
	}
	return &f.txnResult, nil
}

func (f *fakeNode) Compact(ctx context.Context, _ auth.Permit, rev int64, _ bool) (int64, error) {
	if f.onCompact != nil {
		f.onCompact(ctx)
	}
	return rev + 1, f.failure()
}

func (f *fakeNode) Grant(context.Context, auth.Permit, int64, int64) (lease.Status, error) {
	return f.lease, f.failure()
}

func (f *fakeNode) Revoke(context.Context, auth.Permit, int64) (int64, error) {
	return fakeRevision, f.failure()
}

func (f *fakeNode) KeepAlive(_ context.Context, _ auth.Permit, id int64) (int64, error) {
	if f.onRenew != nil {
		return f.onRenew(id)
	}
	return f.lease.GrantedTTL, f.failure()
}

func (f *fakeNode) TimeToLive(context.Context, auth.Permit, int64, bool) (lease.Status, error) {
	if f.onLookUp != nil {
		if err := f.onLookUp(); err != nil {
			return lease.Status{}, err
		}
	}
	return f.lease, f.failure()
}

func (f *fakeNode) IDs(context.Context, auth.Permit) ([]int64, error) {
	return f.leases, f.failure()
}

func (f *fakeNode) All() []quota.Alarm {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.alarms
}

// raise sets the alarms of a node that is served already, and checks itself.
func (f *fakeNode) raise(alarms ...quota.Alarm) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.alarms = alarms
}

func (f *fakeNode) List(context.Context, auth.Permit) ([]quota.Alarm, error) {
	return f.alarms, f.failure()
}

func (f *fakeNode) Raise(_ context.Context, _ auth.Permit, a quota.Alarm) ([]quota.Alarm, error) {
	return []quota.Alarm{a}, f.failure()
}

func (f *fakeNode) Disarm(context.Context, auth.Permit, quota.Alarm) ([]quota.Alarm, error) {
	return nil, f.failure()
}

func (f *fakeNode) Defragment(context.Context, auth.Permit) error {
	return f.failure()
}

// noUsers is what a fake knows of users and roles: authentication is off.
var noUsers = &auth.Rows{}

func (f *fakeNode) Rows() *auth.Rows {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users != nil {
		return f.users
	}
	return noUsers
}

func (f *fakeNode) setUsers(rows *auth.Rows) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.users = rows
}

func (f *fakeNode) Refresh(context.Context) (*auth.Rows, error) { return f.Rows(), nil }

func (f *fakeNode) Sync(context.Context) (*auth.Rows, error) { return f.Rows(), f.failure() }

func (f *fakeNode) OfLeader(context.Context) (*auth.Rows, int64, error) {
	return f.Rows(), fakeRevision, f.failure()
}

func (f *fakeNode) Change(_ context.Context, _ auth.Permit,
	change func(*auth.Rows) (*auth.Change, error)) (int64, error) {
	if err := f.failure(); err != nil {
		return 0, err
	}
	got, err := change(f.Rows())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gotAuth = got
	return fakeRevision, err
}

// fakeStream is a watch stream whose responses a test queues.
type fakeStream struct {
	responses chan *watch.Response
	requests  chan any // watch.CreateRequest, int64 or struct{}
	closed    chan struct{}
	once      sync.Once
}

func newFakeStream() *fakeStream {
	return &fakeStream{responses: make(chan *watch.Response, 16), requests: make(chan any, 16),
		closed: make(chan struct{})}
}

func (s *fakeStream) Create(_ watch.Decision, r watch.CreateRequest) { s.requests <- r }
func (s *fakeStream) Cancel(id int64)                                { s.requests <- id }
func (s *fakeStream) RequestProgress()                               { s.requests <- struct{}{} }
func (s *fakeStream) Close()                                         { s.once.Do(func() { close(s.closed) }) }

func (s *fakeStream) Next(ctx context.Context) (*watch.Response, error) {
	select {
	case r := <-s.responses:
		return r, nil
	case <-s.closed:
		return nil, watch.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
