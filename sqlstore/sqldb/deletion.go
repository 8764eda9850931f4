package sqldb

import (
	"bytes"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// LeastDeleted is the number of keys from which a Deletion is faster than a swap for each.
	LeastDeleted = 1000
	// rowsPerSwap is how many index rows a statement can pass in the time that a swap takes.
	rowsPerSwap = 4
)

// A Deletion stands for the swaps of a batch that replace index rows, which follow each other, by tombstones of one
// revision. If no other index row between the first and the last is live, one statement over the range makes them. The
// keys of a lease may be spread over a range of any size: no statement reads more than MostRows.
type Deletion struct {
	First, Last []byte        // keys of index rows
	Revision    []byte        // of the tombstones, 8 bytes
	Swaps       []sqlstore.Op // in key order
	Others      []sqlstore.Op // of the batch, in their order
}

var indexMagic = coder.EncodeIndexKey(nil)[:4]

// FindDeletion returns the first Deletion of a batch of at least LeastDeleted keys, nil if there is none.
func FindDeletion(ops []sqlstore.Op) *Deletion {
	for first := 0; first+LeastDeleted <= len(ops); first++ {
		last := first
		for last < len(ops) && deletes(&ops[last]) && (last == first ||
			bytes.Compare(ops[last-1].Key, ops[last].Key) < 0 &&
				bytes.Equal(revisionOf(ops[first].Value), revisionOf(ops[last].Value))) {
			last++
		}
		if last-first >= LeastDeleted {
			return &Deletion{
				First: ops[first].Key, Last: ops[last-1].Key, Revision: revisionOf(ops[first].Value),
				Swaps: ops[first:last], Others: slices.Concat(ops[:first], ops[last:]),
			}
		}
		first = max(first, last-1)
	}
	return nil
}

// deletes reports whether op swaps the index row of a live key for that of its only newer version, a tombstone.
func deletes(op *sqlstore.Op) bool {
	if op.Kind != sqlstore.OpCAS || !bytes.HasPrefix(op.Key, indexMagic) {
		return false
	}
	old, err := coder.DecodeIndex(op.Old)
	if err != nil || old.Tombstone {
		return false
	}
	x, err := coder.DecodeIndex(op.Value)
	return err == nil && x == coder.Index{ModRevision: x.ModRevision, PrevRevision: old.ModRevision, Tombstone: true}
}

// revisionOf returns the row version of an index row.
func revisionOf(value []byte) []byte { return value[1:9] }

// MostRows returns how many index rows before the last may be read: SeekNthText finds one more if there are too many.
func (d *Deletion) MostRows() int { return rowsPerSwap*len(d.Swaps) - 1 }

// OldRevision returns the row version that a swap replaces, 8 bytes.
func (d *Deletion) OldRevision(i int) []byte { return revisionOf(d.Swaps[i].Old) }
