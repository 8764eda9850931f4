package write

import (
	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/tso"
)

// batchState is the newest state as the commands of one batch see it: the committed state,
// plus the accepted changes of earlier commands. Only the sequencer uses it.
type batchState struct {
	p     *Pipeline // nil in read-only transactions
	base  int64     // the applied revision when the batch began
	alloc *tso.Allocation

	keys    map[string]*keyState
	changes []change
	leases  map[int64]*coder.Lease // changed leases; nil is a revoked one
	meta    map[string][]byte      // other rows; nil is a removed one
	auth    *auth.Rows             // users and roles; nil in read-only transactions
	bytes   int
	// presume allows keys to be presumed absent; presumed are those that were.
	presume  bool
	presumed [][]byte
	after    []func() // run in order after the commit, before any request is answered
	tx       Tx       // of the current command; reused to save allocations
}

// keyState is a key that the batch changes.
type keyState struct {
	base    indexEntry    // what the table has
	rec     *coder.Record // what the commit writes
	changes int
}

// change is one version that the batch writes.
type change struct {
	rec *coder.Record
	// prev is the live version it replaces: metadata, and the value if full.
	prev     *coder.Record
	prevFull bool
}

func newBatchState(p *Pipeline) *batchState {
	return &batchState{
		p: p, base: p.cfg.Revisions.Visible(), alloc: p.cfg.Revisions.Allocate(),
		keys: make(map[string]*keyState), leases: make(map[int64]*coder.Lease), meta: make(map[string][]byte),
		auth: p.cfg.Leader.AuthRows(),
	}
}

// full reports whether further commands belong in the next commit.
func (s *batchState) full() bool {
	return 2*len(s.changes)+len(s.meta)+len(s.leases) >= s.p.cfg.Limits.BatchRows || s.bytes >= s.p.cfg.Limits.BatchBytes
}

// empty reports whether there is nothing to commit.
func (s *batchState) empty() bool {
	return len(s.changes) == 0 && len(s.leases) == 0 && len(s.meta) == 0
}

// entry returns what the index cache keeps of the key.
func (ks *keyState) entry() indexEntry { return indexEntry{Index: ks.index(), exists: true} }

// index returns the key's new index entry.
func (ks *keyState) index() coder.Index {
	return coder.Index{
		ModRevision: ks.rec.ModRevision, PrevRevision: ks.base.ModRevision, CreateRevision: ks.rec.CreateRevision,
		Version: ks.rec.Version, Lease: ks.rec.Lease, Tombstone: ks.rec.Tombstone, Gap: ks.changes > 1,
	}
}
