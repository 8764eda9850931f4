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

// Replica is one node's replica of a table. It knows the newest revision, answers reads and
// watches, and leads while Lead runs. Safe for concurrent use.
type Replica struct {
	cfg     Config
	log     *slog.Logger
	store   sqlstore.Store
	metrics *metrics

	identity  identity
	tso       *tso.Oracle
	published *tso.Oracle // up to which revision the hub has published; follows tso
	compacted *compact.Mark
	seen      *fence.Seen
	visible   visibility // which revisions in the table a follower may show
	shown     shown
	checked   atomic.Pointer[coder.FenceToken] // the fence row at the last Check; nil before
	caughtUp  coder.FenceToken                 // the fence row at the last CatchUp that compared shown; CatchUp's
	hub       *watch.Hub
	history   *history.Log
	reader    *read.Reader
	exporter  *export.Exporter
	view      *keyspace.View
	alarms    *quota.Alarms
	users     *auth.Users
	space     *quota.Space
	losses    *fence.LossRecorder

	positions *coalesce.Group[Update] // the leader's
	marks     *coalesce.Group[int64]  // the compaction mark in the table
	authLoads *coalesce.Group[*auth.Rows]
	verifies  *coalesce.Group[struct{}] // of shown with the table
	probe     *probe
	fed       atomic.Int64 // when the node last knew the newest commit, since processStart

	timeout *mvcc.Timeout // of requests

	leading atomic.Pointer[leader] // nil while the node does not lead
	stopped atomic.Pointer[error]  // why the node serves nothing, nil while it serves
	cancel  context.CancelFunc
	workers sync.WaitGroup
}

// errClosed is the error of calls that Close ends.
var errClosed = fmt.Errorf("%w: closed", mvcc.ErrNotServing)

// Revision returns the newest visible revision.
func (b *Replica) Revision() int64 { return b.tso.Visible() }

// CompactRevision returns the compact revision, -1 if nothing was compacted yet.
func (b *Replica) CompactRevision() int64 { return b.compacted.Revision() }

// Hub returns the hub for watches.
func (b *Replica) Hub() *watch.Hub { return b.hub }
