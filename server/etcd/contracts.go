package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	etcdauth "go.etcd.io/etcd/server/v3/auth"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/watch"
)

// The parts of *backend.Backend that the handlers need, by service.
type (
	identity interface {
		ClusterID() uint64
		MemberID() uint64
		Revision() int64
		Status() backend.Status
	}

	kvBackend interface {
		Range(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool) (*mvcc.RangeResult, error)
		RangeStream(ctx context.Context, as auth.Permit, r *mvcc.RangeRequest, linearizable bool, chunkBytes int, send func(*mvcc.RangeResult, bool) error) error
		Txn(ctx context.Context, as auth.Permit, t *mvcc.Txn, linearizable bool) (*mvcc.TxnResult, error)
		Compact(ctx context.Context, as auth.Permit, rev int64, physical bool) (int64, error)
	}

	leaseBackend interface {
		LeaseGrant(ctx context.Context, as auth.Permit, id, ttl int64) (lease.Status, error)
		LeaseRevoke(ctx context.Context, as auth.Permit, id int64) (revision int64, err error)
		LeaseKeepAlive(ctx context.Context, as auth.Permit, id int64) (ttl int64, err error)
		LeaseTimeToLive(ctx context.Context, as auth.Permit, id int64, keys bool) (lease.Status, error)
		Leases(ctx context.Context, as auth.Permit) ([]int64, error)
	}

	maintenanceBackend interface {
		Alarms() []quota.Alarm
		ListAlarms(ctx context.Context, as auth.Permit) ([]quota.Alarm, error)
		RaiseAlarm(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error)
		DisarmAlarm(ctx context.Context, as auth.Permit, a quota.Alarm) ([]quota.Alarm, error)
		HashKV(ctx context.Context, as auth.Permit, rev int64, marshal func(*coder.Record) ([]byte, error)) (export.Hash, error)
		Hash(ctx context.Context, as auth.Permit) (uint32, error)
		Defragment(ctx context.Context, as auth.Permit) error
		OpenSnapshot(ctx context.Context, as auth.Permit) (*export.Snapshot, error)
	}

	// consoleBackend is what the console reads and etcd has no RPC for.
	consoleBackend interface {
		AuthRows() *auth.Rows
		Children(ctx context.Context, as auth.Permit, q *read.ChildrenRequest) (*read.Children, error)
		KeyHistory(ctx context.Context, as auth.Permit, q *read.KeyHistoryRequest) (*read.KeyHistory, error)
	}
)

// Node is the backend that the handlers use.
type Node interface {
	identity
	kvBackend
	leaseBackend
	maintenanceBackend
	consoleBackend
}

var _ Node = (*backend.Backend)(nil)

// The parts of *guard.Guard that the handlers need, by service.
type (
	// callerGuard permits requests by the caller alone.
	callerGuard interface {
		Somebody(ctx context.Context) (auth.Permit, error)
		Admin(ctx context.Context) (auth.Permit, error)
	}

	kvGuard interface {
		callerGuard
		Range(key, end []byte) (auth.Permit, *guard.Read)
		ReadTxn(r *pb.TxnRequest) (auth.Permit, *guard.Read)
		WriteTxn(ctx context.Context, r *pb.TxnRequest) (auth.Permit, guard.Caller, error)
		Put(ctx context.Context, r *pb.PutRequest) (auth.Permit, guard.Caller, error)
		DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (auth.Permit, guard.Caller, error)
	}

	watchGuard interface {
		Watch(ctx context.Context, key, end []byte) error
	}

	leaseGuard interface {
		callerGuard
		LeaseRevoke(ctx context.Context, id int64) (auth.Permit, error)
		LeaseRenew(ctx context.Context, id int64) (auth.Permit, error)
		LeaseTimeToLive(ctx context.Context, id int64, keys bool) (auth.Permit, error)
		Leases(ctx context.Context) (auth.Permit, error)
	}

	authGuard interface {
		Revision() uint64
		Ask(ctx context.Context, see func(as etcdauth.AuthStore, user string, admin error) error) (revision int64, err error)
		Change(ctx context.Context, apply func(etcdauth.AuthStore) error) (revision int64, err error)
		Authenticate(ctx context.Context, name, password string, issue guard.Issuer) (token string, revision int64, err error)
		IssueToken(ctx context.Context, name, prefix string) (token string, revision int64, err error)
		RevokeToken(ctx context.Context, h coder.TokenHash) error
		Logout(ctx context.Context, revoke func(context.Context, coder.TokenHash) error) error
	}

	// passwordGuard hashes passwords before they are forwarded.
	passwordGuard interface {
		callerGuard
		HashPassword(ctx context.Context, password string) (encoded string, err error)
	}

	// identityGuard names the caller, for logs and in calls on the caller's behalf.
	identityGuard interface {
		User(ctx context.Context) string
		Inner(ctx context.Context) metadata.MD
	}
)

// Guard authenticates callers and permits their requests.
type Guard interface {
	kvGuard
	watchGuard
	leaseGuard
	authGuard
	passwordGuard
	identityGuard
}

var _ Guard = (*guard.Guard)(nil)

// Members are the members of the cluster, for the Cluster service.
type Members interface {
	Members(ctx context.Context) ([]member.Member, error)
	Cached() []member.Member
	Add(ctx context.Context, peerURLs []string, learner bool) (member.Member, []member.Member, error)
	Remove(ctx context.Context, id uint64) ([]member.Member, error)
	Update(ctx context.Context, id uint64, peerURLs []string) ([]member.Member, error)
	Promote(ctx context.Context, id uint64) ([]member.Member, error)
}

var _ Members = (*member.Registry)(nil)

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

// OpenWatch opens a stream on the backend's current hub. It fails with
// mvcc.ErrNotServing while there is none.
type OpenWatch func() (WatchStream, error)

// HubStreams opens streams on the hub of b.
func HubStreams(b *backend.Backend) OpenWatch {
	return func() (WatchStream, error) {
		hub := b.Hub()
		if hub == nil {
			return nil, mvcc.ErrNotServing
		}
		return hub.NewStream(), nil
	}
}
