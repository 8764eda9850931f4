package replica

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/coalesce"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/lease"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/compact"
	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/tso"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Replica is one node's replica of a table: it knows the newest revision, publishes the commits of
// the leader, and leads while Lead runs. Safe for concurrent use.
type Replica struct {
	// Requests that are not writes go to the components that own them. The fields do not change.
	Reader      *read.Reader       // ranges
	Exporter    *export.Exporter   // snapshots and hashes
	Hub         *watch.Hub         // watches
	Auth        *auth.Store        // users, roles and tokens
	Attachments *lease.Attachments // keys of leases, and the state that permits are checked on
	Alarms      *quota.Alarms
	Space       *quota.Space
	Probe       *quota.Probe
	Divergence  *Divergence
	Losses      *fence.LossRecorder

	cfg     Config
	log     *slog.Logger
	store   sqlstore.Store
	metrics *metrics
	timeout *mvcc.Timeout // of requests

	identity  identity
	tso       *tso.Oracle
	compacted *compact.Mark
	seen      *fence.Seen
	limit     visibleLimit                     // up to which revision of the table a follower may go
	refreshed atomic.Pointer[coder.FenceToken] // the fence row at the last RefreshState; nil before
	caughtUp  coder.FenceToken                 // the fence row at the last CatchUp that checked for divergence; CatchUp's
	history   *history.Log
	view      *keyspace.View

	positions *coalesce.Group[Update] // the leader's
	marks     *coalesce.Group[int64]  // the compaction mark in the table
	fed       atomic.Int64            // when the node last knew the newest commit, since processStart

	leading atomic.Pointer[leader] // nil while the node does not lead
	stopped atomic.Pointer[error]  // why the node serves nothing, nil while it serves
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// errClosed is the error of calls that Close ends.
var errClosed = fmt.Errorf("%w: closed", mvcc.ErrNotServing)

// Revision returns the newest visible revision.
func (r *Replica) Revision() int64 { return r.tso.Visible() }

// CompactRevision returns the compact revision, -1 if nothing was compacted yet.
func (r *Replica) CompactRevision() int64 { return r.compacted.Revision() }
