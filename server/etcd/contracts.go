package etcd

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Node is the replica that the handlers use.
type Node interface {
	ClusterID() uint64
	MemberID() uint64
	Revision() int64
	Status() replica.Status

	Range(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool) (*mvcc.RangeResult, error)
	RangeStream(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool, chunkBytes int,
		send func(*mvcc.RangeResult, bool) error) error
	Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error)
	Compact(ctx context.Context, as auth.Permit, rev int64, physical bool) (int64, error)

	LeaseGrant(ctx context.Context, as auth.Permit, id, ttl int64) (lease.Status, error)
	LeaseRevoke(ctx context.Context, as auth.Permit, id int64) (revision int64, err error)
	LeaseKeepAlive(ctx context.Context, as auth.Permit, id int64) (ttl int64, err error)
	LeaseTimeToLive(ctx context.Context, as auth.Permit, id int64, keys bool) (lease.Status, error)
	Leases(ctx context.Context, as auth.Permit) ([]int64, error)

	Alarms() []quota.Alarm
	ListAlarms(ctx context.Context, as auth.Permit) ([]quota.Alarm, error)
	RaiseAlarm(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error)
	DisarmAlarm(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error)
	HashKV(ctx context.Context, as auth.Permit, rev int64, marshal func(*coder.Record) ([]byte, error)) (
		export.Hash, error)
	Hash(ctx context.Context, as auth.Permit) (uint32, error)
	Defragment(ctx context.Context, as auth.Permit) error
	OpenSnapshot(ctx context.Context, as auth.Permit) (*export.Snapshot, error)

	// For the console. etcd has no RPCs for these.
	AuthRows() *auth.Rows
	Children(ctx context.Context, as auth.Permit, q *read.ChildrenRequest) (*read.Children, error)
	KeyHistory(ctx context.Context, as auth.Permit, q *read.KeyHistoryRequest) (*read.KeyHistory, error)
	Watched(ctx context.Context, as auth.Permit, most int) (ranges []watch.Watched, count int, err error)
}

var _ Node = (*replica.Replica)(nil)

// LeaderMover moves the leadership to another member. Errors: mvcc.ErrNotLeader,
// node.ErrBadTransferee.
type LeaderMover interface {
	MoveLeader(ctx context.Context, member uint64) error
}

// WatchStream is what the watch handler needs of *watch.Stream.
type WatchStream interface {
	Create(v watch.Verdict, r watch.CreateRequest)
	Cancel(id int64)
	RequestProgress()
	Next(ctx context.Context) (*watch.Response, error)
	Close()
}

var _ WatchStream = (*watch.Stream)(nil)

// OpenWatch opens a stream on the replica's current hub. It fails with
// mvcc.ErrNotServing while there is none.
type OpenWatch func() (WatchStream, error)

// HubStreams opens streams on the hub of b.
func HubStreams(b *replica.Replica) OpenWatch {
	return func() (WatchStream, error) {
		hub := b.Hub()
		if hub == nil {
			return nil, mvcc.ErrNotServing
		}
		return hub.NewStream(), nil
	}
}
