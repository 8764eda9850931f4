package server

import (
	"context"
	"errors"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/watch"
)

// fakeNode answers with what a test put in it, and keeps what it was asked.
type fakeNode struct {
	mu      sync.Mutex
	serving error
	err     error // of every call
	alarms  []quota.Alarm
	noQuota bool
	health  fakeHealth
	users   *auth.Rows // nil: noUsers

	rangeResult  mvcc.RangeResult
	txnResult    mvcc.TxnResult
	streamChunks []mvcc.RangeResult
	lease        lease.Status
	leases       []int64
	hash         export.Hash

	gotRange        *mvcc.RangeRequest
	gotTxn          *mvcc.Txn
	gotLinearizable bool
	gotPhysical     bool
	gotAlarm        quota.Alarm
	gotLease, gotID int64
	gotAuth         *auth.Change

	// hold, if set, is waited for by reads.
	hold chan struct{}
	// onRange, if set, is told of reads.
	onRange func(context.Context)
	// onApply, if set, is AwaitApplied.
	onApply func(context.Context, replica.Update) error
}

// fake is a node that implements all its parts.
type fake interface {
	etcd.Node
	etcd.Reader
	etcd.Writer
	etcd.Lessor
	etcd.Alarms
	etcd.Exporter
	etcd.Defragmenter
	forward.Node
	status.Node
	status.Probe
	guard.Users
	guard.Attachments
}

// nodeOfFake returns the parts of f, whose watch stream is stream; nil: one that is closed.
func nodeOfFake(f fake, stream etcd.WatchStream) node {
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
func (f *fakeNode) MemberID() uint64  { return fakeMember }
func (f *fakeNode) Revision() int64   { return fakeRevision }

func (f *fakeNode) Status() replica.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	leader := fakeMember
	if f.serving != nil {
		leader = 0
	}
	quota := int64(1 << 30)
	if f.noQuota {
		quota = 0
	}
	return replica.Status{
		Revision: fakeRevision, CompactRevision: -1, Term: fakeTerm, Sequence: 7,
		DBSize: 4096, DBSizeInUse: 2048, QuotaBytes: quota, Leader: leader, NotServing: f.serving,
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

// MayWriteLease is for permits.
func (f *fakeNode) MayWriteLease(ctx context.Context, id int64, _ string, see func([]byte) error) error {
	return f.EachKey(ctx, id, see)
}

func (f *fakeNode) Range(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest,
	linearizable bool) (*mvcc.RangeResult, error) {
	if err := as.Check(ctx, f); err != nil {
		return nil, err
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if string(r.Key) != "health" { // else the node checks itself, at any time
		if f.onRange != nil {
			f.onRange(ctx)
		}
		f.gotRange, f.gotLinearizable = r, linearizable
	}
	if err := f.failure(); err != nil {
		return nil, err
	}
	return &f.rangeResult, nil
}

func (f *fakeNode) RangeStream(_ context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool, _ int,
	send func(*mvcc.RangeResult, bool) error) error {
	if err := as.Check(context.Background(), f); err != nil {
		return err
	}
	f.gotRange, f.gotLinearizable = r, linearizable
	for i := range f.streamChunks {
		if err := send(&f.streamChunks[i], i == len(f.streamChunks)-1); err != nil {
			return err
		}
	}
	return f.failure()
}

func (f *fakeNode) Txn(_ context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error) {
	f.gotTxn, f.gotLinearizable = t, linearizable
	if err := f.failure(); err != nil {
		return nil, err
	}
	if err := as.Check(context.Background(), f); err != nil {
		return nil, err
	}
	return &f.txnResult, nil
}

func (f *fakeNode) Compact(_ context.Context, as auth.Permit, rev int64, physical bool) (int64, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return 0, err
	}
	f.gotPhysical = physical
	return rev + 1, f.failure()
}

func (f *fakeNode) Grant(_ context.Context, as auth.Permit, id, ttl int64) (lease.Status, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return lease.Status{}, err
	}
	f.gotID, f.gotLease = id, ttl
	return f.lease, f.failure()
}

func (f *fakeNode) Revoke(_ context.Context, as auth.Permit, id int64) (int64, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return 0, err
	}
	f.gotID = id
	return fakeRevision, f.failure()
}

func (f *fakeNode) KeepAlive(_ context.Context, as auth.Permit, id int64) (int64, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return 0, err
	}
	return f.lease.GrantedTTL, f.failure()
}

func (f *fakeNode) TimeToLive(_ context.Context, as auth.Permit, _ int64, _ bool) (lease.Status, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return lease.Status{}, err
	}
	return f.lease, f.failure()
}

func (f *fakeNode) IDs(_ context.Context, as auth.Permit) ([]int64, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return nil, err
	}
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

func (f *fakeNode) List(_ context.Context, as auth.Permit) ([]quota.Alarm, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return nil, err
	}
	return f.alarms, f.failure()
}

func (f *fakeNode) Raise(_ context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return nil, err
	}
	f.gotAlarm = a
	return []quota.Alarm{a}, f.failure()
}

func (f *fakeNode) Disarm(_ context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return nil, err
	}
	f.gotAlarm = a
	return nil, f.failure()
}

func (f *fakeNode) HashKV(_ context.Context, as auth.Permit, _ int64,
	marshal func(*coder.Record) ([]byte, error)) (export.Hash, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return export.Hash{}, err
	}
	_, err := marshal(&coder.Record{Key: []byte("k")})
	if err == nil {
		err = f.failure()
	}
	return f.hash, err
}

func (f *fakeNode) Hash(_ context.Context, as auth.Permit) (uint32, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return 0, err
	}
	return f.hash.Hash, f.failure()
}
func (f *fakeNode) Defragment(_ context.Context, as auth.Permit) error {
	if err := as.Check(context.Background(), f); err != nil {
		return err
	}
	return f.failure()
}

func (f *fakeNode) OpenSnapshot(_ context.Context, as auth.Permit) (*export.Snapshot, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return nil, err
	}
	if err := f.failure(); err != nil {
		return nil, err
	}
	return nil, errors.New("there is nothing to open")
}

// noUsers is what a fake knows of users and roles: authentication is off.
var noUsers = &auth.Rows{}

// AuthRows is for permits.
func (f *fakeNode) AuthRows() *auth.Rows { return f.Rows() }

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

func (f *fakeNode) Sync(context.Context) (*auth.Rows, error) {
	return f.Rows(), f.failure()
}

func (f *fakeNode) OfLeader(context.Context) (*auth.Rows, int64, error) {
	return f.Rows(), fakeRevision, f.failure()
}

func (f *fakeNode) Change(_ context.Context, as auth.Permit,
	change func(*auth.Rows) (*auth.Change, error)) (int64, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return 0, err
	}
	if err := f.failure(); err != nil {
		return 0, err
	}
	rows := f.Rows()
	got, err := change(rows)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gotAuth = got
	return fakeRevision, err
}

func (f *fakeNode) IssueToken(_ context.Context, as auth.Permit, _ string,
	_ func(*auth.Rows) (coder.Token, error)) (string, int64, error) {
	if err := as.Check(context.Background(), f); err != nil {
		return "", 0, err
	}
	return "token.1", fakeRevision, f.failure()
}

func (f *fakeNode) LookupToken(context.Context, coder.TokenHash) (coder.Token, bool, error) {
	return coder.Token{}, false, f.failure()
}

func (f *fakeNode) EachKey(context.Context, int64, func([]byte) error) error { return f.failure() }

func (f *fakeNode) EachAttachment(context.Context, func(int64, []byte) error) error {
	return f.failure()
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

func (s *fakeStream) Create(_ watch.Verdict, r watch.CreateRequest) { s.requests <- r }
func (s *fakeStream) Cancel(id int64)                               { s.requests <- id }
func (s *fakeStream) RequestProgress()                              { s.requests <- struct{}{} }
func (s *fakeStream) Close()                                        { s.once.Do(func() { close(s.closed) }) }

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
