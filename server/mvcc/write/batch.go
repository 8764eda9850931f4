package write

import (
	"bytes"
	"maps"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/tso"
)

// batch is the newest state as the commands of one batch see it: the committed state,
// plus the accepted changes of earlier commands. Only the sequencer uses it.
type batch struct {
	p     *Pipeline
	base  int64 // the visible revision when the batch began
	alloc *tso.Allocation

	changes []txn.Change
	changed txn.Overlay            // of changes, over the committed state
	bases   []indexEntry           // of the key of each change, if it is the first: what the table has
	read    map[string]indexEntry  // what the table has for keys, as Tx.indexOf found or read it
	leases  map[int64]*coder.Lease // changed leases; nil is a revoked one
	rows    map[string][]byte      // other rows; nil is a removed one
	auth    *auth.Rows
	bytes   int
	// assume allows keys to be assumed absent; assumed are those that were.
	assume   bool
	assumed  [][]byte
	done     []*Prefetch // of accepted commands, which need no changes any longer
	onCommit []func()    // run in order after the commit, before it can be read
	requests []*request  // not evaluated yet, the current one first
	tx       Tx          // of the current command; reused to save allocations
}

func newBatch(p *Pipeline, assume bool) *batch {
	return &batch{
		p: p, base: p.cfg.Revisions.Visible(), alloc: p.cfg.Revisions.Allocate(),
		leases: make(map[int64]*coder.Lease), rows: make(map[string][]byte),
		auth: p.cfg.Leader.AuthRows(), assume: assume, read: make(map[string]indexEntry),
	}
}

// begin returns the transaction of the next command, which has the prefetch pre. The one before
// must no longer be used.
func (b *batch) begin(pre *Prefetch) *Tx {
	tx := &b.tx
	*tx = Tx{
		batch: b, prefetch: pre, rev: b.alloc.Peek(), bases: tx.bases[:0],
		changes: tx.changes[:0], assumed: tx.assumed[:0], onCommit: tx.onCommit[:0],
	}
	return tx
}

// accept makes the changes of tx part of the batch. It takes a revision if tx changes a key.
func (b *batch) accept(tx *Tx) {
	if len(tx.changes) > 0 {
		b.alloc.Take()
	}
	for i := range tx.changes {
		c := &tx.changes[i]
		b.changed.Add(c)
		b.bytes += 2*len(c.Record.Key) + len(c.Record.Value) + 200
	}
	b.changes, b.bases = append(b.changes, tx.changes...), append(b.bases, tx.bases...)
	b.assumed = append(b.assumed, tx.assumed...)
	if tx.prefetch != nil {
		b.done = append(b.done, tx.prefetch)
	}
	maps.Copy(b.leases, tx.leases)
	maps.Copy(b.rows, tx.rows)
	if tx.auth != nil {
		b.auth = tx.auth
	}
	b.onCommit = append(b.onCommit, tx.onCommit...)
}

// full reports whether further commands belong in the next commit.
func (b *batch) full() bool {
	return 2*len(b.changes)+len(b.rows)+len(b.leases) >= b.p.cfg.Limits.BatchRows || b.bytes >= b.p.cfg.Limits.BatchBytes
}

// empty reports whether there is nothing to commit.
func (b *batch) empty() bool { return len(b.changes) == 0 && len(b.leases) == 0 && len(b.rows) == 0 }

// entry returns the index entry of a changed key after the commit.
func (b *batch) entry(c *txn.Changed) indexEntry {
	rec := c.Record
	return indexEntry{exists: true, Index: coder.Index{
		ModRevision: rec.ModRevision, PrevRevision: b.bases[c.First].ModRevision, CreateRevision: rec.CreateRevision,
		Version: rec.Version, Lease: rec.Lease, Tombstone: rec.Tombstone, Gap: c.Times > 1,
	}}
}

// ops returns what a commit at that time writes, in key order: so it touches the engine's pages in order.
func (b *batch) ops(at time.Time) []sqlstore.Op {
	ops := make([]sqlstore.Op, 0, 2*len(b.changes)+len(b.leases)+len(b.rows)+1)
	log := make([]coder.Change, len(b.changes))
	replaced := make(map[string]int64) // the last tombstone of a key, once the key is created again
	for c := range b.changed.All() {
		base, key := b.bases[c.First], c.Record.Key
		ops = appendKey(ops, base, b.entry(c), key)
		if base.exists && base.Tombstone {
			replaced[string(key)] = base.ModRevision
			ops = append(ops, creation(coder.EncodeVersionKey(key, base.ModRevision), coder.EncodeTombstone()))
		}
	}
	for i, c := range b.changes {
		rec := c.Record
		log[i] = coder.Change{Revision: rec.ModRevision, Sub: rec.Sub, Key: rec.Key, Tombstone: rec.Tombstone}
		if c.Prev != nil {
			log[i].PrevRevision = c.Prev.ModRevision
		} else {
			log[i].PrevTombstone = replaced[string(rec.Key)]
		}
		switch {
		case !rec.Tombstone:
			ops = append(ops, creation(coder.EncodeVersionKey(rec.Key, rec.ModRevision), coder.EncodeVersion(rec)))
		case len(b.changes) > b.changed.Len() && b.changed.Get(rec.Key).Record != rec: // it is created again
			replaced[string(rec.Key)] = rec.ModRevision
			ops = append(ops, creation(coder.EncodeVersionKey(rec.Key, rec.ModRevision), coder.EncodeTombstone()))
		}
	}
	if len(log) > 0 {
		for i, row := range coder.EncodeLog(at, log) {
			ops = append(ops, creation(coder.EncodeLogKey(b.alloc.Last(), uint16(i+1)), row))
		}
	}
	for id, l := range b.leases {
		var row []byte
		if l != nil {
			row = coder.EncodeLease(*l)
		}
		op := replacement(coder.EncodeLeaseKey(id), row)
		if before, ok := b.p.cfg.Leases.Lease(id); ok {
			op.Old = coder.EncodeLease(before) // its length is right
		}
		ops = append(ops, op)
	}
	for k, v := range b.rows {
		ops = append(ops, replacement([]byte(k), v))
	}
	slices.SortFunc(ops, func(x, y sqlstore.Op) int { return bytes.Compare(x.Key, y.Key) })
	return ops
}

// appendKey appends what replaces the index row of key, and moves its attachment row from its previous
// lease to its new one. Compaction may have removed the index row of a tombstone, which is equivalent.
func appendKey(ops []sqlstore.Op, before, after indexEntry, key []byte) []sqlstore.Op {
	row := before.encoded
	if row == nil {
		row = &encodedRow{key: coder.EncodeIndexKey(key)}
		if before.exists {
			row.value = coder.EncodeIndex(before.Index)
		}
	}
	index := creation(row.key, coder.EncodeIndex(after.Index))
	if before.exists {
		index.Kind, index.Old = sqlstore.OpCAS, row.value
		if before.Tombstone {
			index.Kind = sqlstore.OpCASOrPut
		}
	}
	ops = append(ops, index)
	// A tombstone has no lease.
	if before.Lease == after.Lease {
		return ops
	}
	if before.Lease != 0 {
		detach := replacement(coder.EncodeAttachmentKey(before.Lease, key), nil)
		detach.Old = coder.Empty()
		ops = append(ops, detach)
	}
	if after.Lease != 0 {
		ops = append(ops, creation(coder.EncodeAttachmentKey(after.Lease, key), coder.Empty()))
	}
	return ops
}

func creation(key, value []byte) sqlstore.Op {
	return sqlstore.Op{Kind: sqlstore.OpPutIfNotExist, Key: key, Value: value}
}

// replacement writes a row whatever it holds; nil removes it.
func replacement(key, value []byte) sqlstore.Op {
	if value == nil {
		return sqlstore.Op{Kind: sqlstore.OpDel, Key: key}
	}
	return sqlstore.Op{Kind: sqlstore.OpPut, Key: key, Value: value}
}
