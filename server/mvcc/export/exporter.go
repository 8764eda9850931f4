package export

import (
	"context"

	"golang.org/x/sync/semaphore"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// maxAttempts bounds how often HashKV begins again because compaction removed rows
	// while it was reading.
	maxAttempts = 8
	// hashesAtATime bounds the calls of Hash and HashKV that read the table. Others wait: each call reads all rows, and
	// HashKV keeps something of each version in memory.
	hashesAtATime = 2
)

// Node is what an Exporter needs of the node that it runs on.
type Node interface {
	// ReadRevision returns the revision to read at, if as permits the request there. A
	// linearizable one includes every write acknowledged before the call.
	ReadRevision(ctx context.Context, as auth.Permit, linearizable bool) (int64, error)
	// Mark returns a compact revision: before the call, nothing that a revision at or above
	// it needs was removed.
	Mark(ctx context.Context) (int64, error)
	// Meta returns what the node knows of the cluster.
	Meta() Meta
}

// Meta is what a snapshot has in addition to keys and leases.
type Meta struct {
	Term, Sequence int64 // of the fence row
	Auth           *auth.Rows
	Alarms         []quota.Alarm
}

// Exporter reads the whole table. Safe for concurrent use.
type Exporter struct {
	store   sqlstore.Store
	node    Node
	hashing *semaphore.Weighted // calls that make a hash
}

// New returns an Exporter of store's table.
func New(store sqlstore.Store, node Node) *Exporter {
	return &Exporter{store: store, node: node, hashing: semaphore.NewWeighted(hashesAtATime)}
}

// Hash answers HashKV.
type Hash struct {
	Hash            uint32
	HashRevision    int64
	CompactRevision int64
	Revision        int64 // the current one
}
