package server

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/watch"
)

// What the handlers need of *backend.Backend, by the group of RPCs that needs it.
type (
	identity interface {
		ClusterID() uint64
		MemberID() uint64
		Revision() int64
		Status() backend.Status
	}

	kvBackend interface {
		Range(ctx context.Context, r *backend.RangeRequest, linearizable bool) (*backend.RangeResult, error)
		RangeStream(ctx context.Context, r *backend.RangeRequest, linearizable bool, chunkBytes int, send func(*backend.RangeResult, bool) error) error
		Txn(ctx context.Context, t *backend.Txn, linearizable bool) (*backend.TxnResult, error)
		Compact(ctx context.Context, rev int64, physical bool) (int64, error)
	}

	leaseBackend interface {
		LeaseGrant(ctx context.Context, id, ttl int64) (backend.LeaseStatus, error)
		LeaseRevoke(ctx context.Context, id int64) (revision int64, err error)
		LeaseKeepAlive(ctx context.Context, id int64) (ttl int64, err error)
		LeaseTimeToLive(ctx context.Context, id int64, keys bool) (backend.LeaseStatus, error)
		Leases(ctx context.Context) ([]int64, error)
	}

	maintenanceBackend interface {
		Alarms() []backend.Alarm
		ListAlarms(ctx context.Context) ([]backend.Alarm, error)
		RaiseAlarm(ctx context.Context, a backend.Alarm) ([]backend.Alarm, error)
		DisarmAlarm(ctx context.Context, a backend.Alarm) ([]backend.Alarm, error)
		HashKV(ctx context.Context, rev int64, marshal func(*coder.Record) ([]byte, error)) (backend.Hash, error)
		Hash(ctx context.Context) (uint32, error)
		Defragment(ctx context.Context) error
		OpenSnapshot(ctx context.Context) (*backend.Snapshot, error)
	}

	consoleBackend interface {
		AuthRows() *backend.AuthRows
		Children(ctx context.Context, q *backend.ChildrenRequest) (*backend.Children, error)
		KeyHistory(ctx context.Context, q *backend.KeyHistoryRequest) (*backend.KeyHistory, error)
	}

	// healthBackend says what keeps a node from serving. The errors of Stopped and
	// Fed may be shown to anybody.
	healthBackend interface {
		Stopped() error
		Fed() error
		Writable(ctx context.Context) error
	}

	// applier waits for what the leader has applied.
	applier interface {
		AwaitApplied(ctx context.Context, u backend.Update) error
	}

	// node is all of it.
	node interface {
		identity
		applier
		healthBackend
		auth.Node
		kvBackend
		leaseBackend
		maintenanceBackend
		consoleBackend
	}
)

var _ node = (*backend.Backend)(nil)

// LeaderMover hands the leadership to another member. Errors: backend.ErrNotLeader,
// cluster.ErrBadTransferee.
type LeaderMover interface {
	MoveLeader(ctx context.Context, member uint64) error
}

// watchStream is what the watch handler needs of *watch.Stream.
type watchStream interface {
	Create(r watch.CreateRequest)
	Cancel(id int64)
	RequestProgress()
	Next(ctx context.Context) (*watch.Response, error)
	Close()
}

var _ watchStream = (*watch.Stream)(nil)

// openWatch opens a stream on the backend's hub of the moment; it fails with
// backend.ErrNotServing while there is none.
type openWatch func() (watchStream, error)

func hubStreams(b *backend.Backend) openWatch {
	return func() (watchStream, error) {
		hub := b.Hub()
		if hub == nil {
			return nil, backend.ErrNotServing
		}
		return hub.NewStream(), nil
	}
}
