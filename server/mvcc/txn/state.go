package txn

import (
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// State is the state that a transaction is evaluated on: all keys at one revision, and the leases.
// The caller of its methods owns the slices that they return, and must not change the records.
type State interface {
	// Revision returns the revision of the state.
	Revision() int64
	// CompactRevision returns the compact revision, -1 if nothing was compacted.
	CompactRevision() int64
	// Get returns the record of key, with its value if asked for; nil if the key does not exist.
	Get(ctx context.Context, key []byte, value bool) (*coder.Record, error)
	// List returns the records of kr, a range of several keys, in key order, with their values if
	// asked for. It stops after limit records; 0: no limit.
	List(ctx context.Context, kr mvcc.KeyRange, values bool, limit int64) ([]*coder.Record, error)
	// Count returns how many keys of kr, a range of several keys, exist.
	Count(ctx context.Context, kr mvcc.KeyRange) (int64, error)
	// RangeAt answers q at the older revision that it asks for, which was not compacted.
	RangeAt(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error)
	// LeaseOpen reports whether a put may attach a key to lease id.
	LeaseOpen(id int64) bool
	// PolicyLease returns the lease for a key that is put without one, 0 if it gets none.
	PolicyLease(key []byte) (int64, error)
}

// Change is one version that a transaction writes.
type Change struct {
	Record *coder.Record // may be a tombstone
	// Prev is the live version that it replaces, nil if there is none: metadata, and the value if PrevFull.
	Prev     *coder.Record
	PrevFull bool
}

// Deletion returns the change that deletes the key whose live version is prev. With full, prev has its
// value.
func Deletion(prev *coder.Record, full bool) Change {
	return Change{Record: &coder.Record{Key: prev.Key, Tombstone: true}, Prev: prev, PrevFull: full}
}
