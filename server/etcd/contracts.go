package etcd

import (
	"context"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/watch"
)

// What the handlers need of a node, by service. The comments of the implementations say what the
// methods do.

// Node is the node that headers and answers name. It is a *replica.Replica.
type Node interface {
	ClusterID() uint64
	MemberID() uint64
	Revision() int64
	Status() replica.Status
}

// Reader answers the ranges of the KV service. It is a *read.Reader.
type Reader interface {
	Range(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool) (*mvcc.RangeResult, error)
	RangeStream(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool, chunkBytes int,
		send func(*mvcc.RangeResult, bool) error) error
}

// Writer executes the other calls of the KV service. It is a *replica.Replica.
type Writer interface {
	Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error)
	Compact(ctx context.Context, as auth.Permit, rev int64, physical bool) (int64, error)
}

// Lessor executes the calls of the Lease service. It is a *lease.Lessor.
type Lessor interface {
	Grant(ctx context.Context, as auth.Permit, id, ttl int64) (lease.Status, error)
	Revoke(ctx context.Context, as auth.Permit, id int64) (revision int64, err error)
	KeepAlive(ctx context.Context, as auth.Permit, id int64) (ttl int64, err error)
	TimeToLive(ctx context.Context, as auth.Permit, id int64, keys bool) (lease.Status, error)
	IDs(ctx context.Context, as auth.Permit) ([]int64, error)
}

// Alarms are those of the Maintenance service. It is a *quota.Alarms.
type Alarms interface {
	All() []quota.Alarm
	List(ctx context.Context, as auth.Permit) ([]quota.Alarm, error)
	Raise(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error)
	Disarm(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error)
}

// Exporter makes the snapshots and hashes of the Maintenance service. It is an *export.Exporter.
type Exporter interface {
	HashKV(ctx context.Context, as auth.Permit, rev int64, marshal func(*coder.Record) ([]byte, error)) (
		export.Hash, error)
	Hash(ctx context.Context, as auth.Permit) (uint32, error)
	OpenSnapshot(ctx context.Context, as auth.Permit) (*export.Snapshot, error)
}

// Defragmenter executes Defragment of the Maintenance service. It is a *quota.Space.
type Defragmenter interface {
	Defragment(ctx context.Context, as auth.Permit) error
}

// LeaderMover moves the leadership to another member. Errors: mvcc.ErrNotLeader,
// node.ErrBadTransferee.
type LeaderMover interface {
	MoveLeader(ctx context.Context, member uint64) error
}

// Browser answers reads for which etcd has no RPCs: the console's, and when a revision was committed. It is a
// *read.Reader.
type Browser interface {
	Children(ctx context.Context, as auth.Permit, q *read.ChildrenRequest) (*read.Children, error)
	KeyHistory(ctx context.Context, as auth.Permit, q *read.KeyHistoryRequest) (*read.KeyHistory, error)
	RevisionAt(ctx context.Context, as auth.Permit, at time.Time) (revision int64, err error)
	CommitOf(ctx context.Context, as auth.Permit, revision int64) (history.Commit, error)
}

// WatchStream is what the watch handler needs of *watch.Stream.
type WatchStream interface {
	Create(v watch.Decision, r watch.CreateRequest)
	Cancel(id int64)
	RequestProgress()
	Next(ctx context.Context) (*watch.Response, error)
	Close()
}

var (
	_ Node         = (*replica.Replica)(nil)
	_ Reader       = (*read.Reader)(nil)
	_ Writer       = (*replica.Replica)(nil)
	_ Lessor       = (*lease.Lessor)(nil)
	_ Alarms       = (*quota.Alarms)(nil)
	_ Exporter     = (*export.Exporter)(nil)
	_ Defragmenter = (*quota.Space)(nil)
	_ Browser      = (*read.Reader)(nil)
	_ WatchStream  = (*watch.Stream)(nil)
)

// Components are the parts of a node that the handlers use.
type Components struct {
	Node     Node
	Reader   Reader
	Writer   Writer
	Lessor   func() (Lessor, error) // of the node's leadership. Errors: mvcc.ErrNotLeader, mvcc.ErrNotServing
	Alarms   Alarms
	Exporter Exporter
	Space    Defragmenter
	Browser  Browser
	Watch    func() WatchStream                                 // opens a stream
	Watched  func(most int) (ranges []watch.Watched, count int) // see watch.Hub.Watched
}

// ComponentsOf returns the parts of r.
func ComponentsOf(r *replica.Replica) Components {
	return Components{
		Node: r, Reader: r.Reader, Writer: r, Lessor: func() (Lessor, error) { return r.Lessor() },
		Alarms: r.Alarms, Exporter: r.Exporter, Space: r.Space, Browser: r.Reader,
		Watch: func() WatchStream { return r.Hub.NewStream() }, Watched: r.Hub.Watched,
	}
}
