package write

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
)

// Tx is a command's view of the newest state, and the changes that the command makes. They
// take effect only if Evaluate returns no error. It is the txn.State of transactions. A Tx must not
// be used after Evaluate has returned. Not safe for concurrent use.
type Tx struct {
	batch    *batch
	prefetch *Prefetch // nil: none
	rev      int64     // the revision of its changes, if it makes any
	changes  []txn.Change
	bases    []indexEntry // of their keys, see batch
	leases   map[int64]*coder.Lease
	rows     map[string][]byte
	auth     *auth.Rows
	creates  [][]byte // keys that may be assumed absent, of which assumed were
	assumed  [][]byte
	onCommit []func()
	outcome  outcome // decided, or why the evaluation was stopped
}

// evaluate evaluates cmd, and looks up the index rows that its changes replace.
func (tx *Tx) evaluate(ctx context.Context, cmd Command) error {
	if err := cmd.Evaluate(ctx, tx); err != nil {
		return err
	}
	return tx.loadBases(ctx)
}

// stop ends the evaluation with an outcome, and returns err, which the command must return.
func (tx *Tx) stop(o outcome, err error) error {
	tx.outcome = o
	return err
}

var errNextBatch = errors.New("write: must wait for the next batch")

// Defer returns an error with which a command that depends on a change of an earlier command in the same batch
// ends. The pipeline evaluates it again in the next batch.
func (tx *Tx) Defer() error { return tx.stop(nextBatch, errNextBatch) }

// committed returns a reading of the committed state.
func (tx *Tx) committed() *read.Reading { return tx.batch.p.cfg.Reader.At(tx.batch.base) }

// Revision returns the revision that a read in the transaction sees: the transaction's, once
// it has changed a key, else the one before.
func (tx *Tx) Revision() int64 {
	if len(tx.changes) > 0 {
		return tx.rev
	}
	return tx.rev - 1
}

// CompactRevision implements txn.State.
func (tx *Tx) CompactRevision() int64 { return tx.committed().CompactRevision() }

// Get implements txn.State.
func (tx *Tx) Get(ctx context.Context, key []byte, value bool) (*coder.Record, error) {
	if c := tx.batch.changed.Get(key); c != nil {
		return c.Live(), nil
	}
	if tx.assumeAbsent(key) {
		return nil, nil
	}
	e, err := tx.indexOf(ctx, key)
	if err != nil || !e.live() {
		return nil, err
	}
	if !value {
		return e.Record(key), nil
	}
	if rec := tx.prefetch.value(key, e); rec != nil {
		return rec, nil
	}
	full, err := tx.committed().Get(ctx, key, true)
	if err != nil {
		return nil, err
	}
	if full == nil || !e.of(full) {
		return nil, tx.stale(ctx, key)
	}
	return full, nil
}

// stale ends the evaluation because the rows of key changed while they were read. Its error says so, or
// why this node no longer leads: then another leader may have changed them.
func (tx *Tx) stale(ctx context.Context, key []byte) error {
	if err := tx.batch.p.cfg.Leader.VerifyLeader(ctx); err != nil {
		return err
	}
	return tx.stop(cacheStale, fmt.Errorf("write: the table does not match the cached index of %q", key))
}

// List implements txn.State.
func (tx *Tx) List(ctx context.Context, kr mvcc.KeyRange, values bool, limit int64) ([]*coder.Record, error) {
	return tx.batch.changed.List(kr, limit, func(limit int64) (records []*coder.Record, err error) {
		if r := tx.prefetch.rangeOf(kr, values); r != nil {
			records = slices.Clone(tx.prefetch.list(r, limit))
		} else if records, err = tx.committed().List(ctx, kr.Span(), values, limit); err != nil {
			return nil, err
		}
		if len(tx.assumed) > 0 && slices.ContainsFunc(records, func(r *coder.Record) bool { return tx.isAssumed(r.Key) }) {
			return nil, tx.stop(assumptionFailed, errors.New("write: a key that was assumed absent exists"))
		}
		return records, nil
	})
}

// Count implements txn.State.
func (tx *Tx) Count(ctx context.Context, kr mvcc.KeyRange) (n int64, err error) {
	if r := tx.prefetch.rangeOf(kr, false); r != nil {
		n = int64(len(tx.prefetch.list(r, 0)))
	} else if n, err = tx.committed().Count(ctx, kr.Span()); err != nil {
		return 0, err
	}
	return n + tx.batch.changed.Net(kr), nil
}

// RangeAt implements txn.State.
func (tx *Tx) RangeAt(ctx context.Context, q *mvcc.RangeRequest) (*mvcc.RangeResult, error) {
	if q.Revision > tx.batch.base {
		return nil, tx.Defer()
	}
	if tx.prefetch == nil {
		past, err := tx.committed().Past(q.Revision)
		if err != nil {
			return nil, err
		}
		res, err := past.Range(ctx, q)
		return res, cmp.Or(past.Check(ctx), err)
	}
	if res := tx.prefetch.past[q]; res != nil {
		return res, nil
	}
	// It could not be read yet.
	return nil, tx.stop(prefetchFirst, errors.New("write: a range at an older revision was not prefetched"))
}

// Lease returns the row of lease id after the earlier commands of the batch, false if the
// lease does not exist.
func (tx *Tx) Lease(id int64) (coder.Lease, bool) {
	for _, leases := range []map[int64]*coder.Lease{tx.leases, tx.batch.leases} {
		if l, ok := leases[id]; ok && l != nil {
			return *l, true
		} else if ok {
			return coder.Lease{}, false
		}
	}
	return tx.batch.p.cfg.Leases.Lease(id)
}

// LeaseOpen reports whether a put may attach a key to lease id: it exists and is not being
// revoked.
func (tx *Tx) LeaseOpen(id int64) bool {
	l, ok := tx.Lease(id)
	return ok && !l.Revoking
}

// PolicyLease implements txn.State.
func (tx *Tx) PolicyLease(key []byte) (int64, error) {
	return tx.batch.p.cfg.Leases.PolicyLease(tx, key)
}

// Attached returns, in key order, the records of the keys that PrefetchLease has read and of
// those attached since, without keys that earlier commands or commits have detached. The
// command may delete them.
func (tx *Tx) Attached(pre *Prefetch) []*coder.Record {
	id := pre.lease.id
	held := make([]*coder.Record, 0, len(pre.lease.keys))
	see := func(key []byte, e indexEntry) {
		if tx.batch.changed.Get(key) == nil && e.live() && e.Lease == id {
			held = append(held, e.Record(key))
		}
	}
	for i, key := range pre.lease.keys {
		if pre.changed.Get(key) == nil {
			see(key, pre.bases[i].indexEntry)
		}
	}
	for c := range pre.changed.All() {
		see(c.Record.Key, pre.entries[string(c.Record.Key)])
	}
	for c := range tx.batch.changed.All() {
		if c.Live() != nil && c.Record.Lease == id {
			held = append(held, c.Record)
		}
	}
	slices.SortFunc(held, func(x, y *coder.Record) int { return bytes.Compare(x.Key, y.Key) })
	return held
}

// Delete deletes the key whose live version is prev, without its value.
func (tx *Tx) Delete(prev *coder.Record) {
	c := txn.Deletion(prev, false)
	c.Record.ModRevision, c.Record.Sub = tx.rev, int32(len(tx.changes))
	tx.changes = append(tx.changes, c)
}

// SetRow writes a row of the server that is not a key of a client. A nil value removes it.
func (tx *Tx) SetRow(key, value []byte) {
	if tx.rows == nil {
		tx.rows = make(map[string][]byte)
	}
	tx.rows[string(key)] = value
}

// RowChanged reports whether an earlier command of the batch writes or removes the row.
func (tx *Tx) RowChanged(key []byte) bool {
	_, ok := tx.batch.rows[string(key)]
	return ok
}

// OnCommit registers f to be called on the sequencer after the changes have become durable, and
// before they are readable: a lease ends before the deletion of its keys can be read.
func (tx *Tx) OnCommit(f func()) { tx.onCommit = append(tx.onCommit, f) }

// Sequence returns the sequence that the fence row is going to have after the commit.
func (tx *Tx) Sequence() int64 { return tx.batch.p.cfg.Fence.Value().Sequence + 1 }

// AuthRows returns the users and roles after the earlier commands of the batch.
func (tx *Tx) AuthRows() *auth.Rows { return tx.batch.auth }

// SetAuth replaces the users and roles. The caller must write the changed rows with SetRow.
func (tx *Tx) SetAuth(rows *auth.Rows) { tx.auth = rows }

// SetLease writes the row of a lease; nil removes it.
func (tx *Tx) SetLease(id int64, l *coder.Lease) {
	if tx.leases == nil {
		tx.leases = make(map[int64]*coder.Lease)
	}
	tx.leases[id] = l
}

// BatchLeases returns the rows of leases that the batch writes, with nil for those that it
// removes. The map has the changes of earlier commands, and in OnCommit those of all. The
// caller must not change it.
func (tx *Tx) BatchLeases() map[int64]*coder.Lease { return tx.batch.leases }

// assumeAbsent reports whether key is assumed absent: the command expects it to be, and its index row was not in memory
// when it was first needed. Another request may bring it there since; the command must not see both.
func (tx *Tx) assumeAbsent(key []byte) bool {
	if tx.isAssumed(key) {
		return true
	}
	if !contains(tx.creates, key) {
		return false
	}
	if _, known := tx.batch.read[string(key)]; known {
		return false
	}
	if _, cached := tx.batch.p.index.peek(key); cached {
		return false
	}
	tx.assumed = append(tx.assumed, key)
	return true
}

// isAssumed reports whether the command has assumed key absent.
func (tx *Tx) isAssumed(key []byte) bool { return contains(tx.assumed, key) }

func contains(keys [][]byte, key []byte) bool {
	return slices.ContainsFunc(keys, func(k []byte) bool { return bytes.Equal(k, key) })
}

// unproven reports whether the outcome depends on the absence of a key that the command does
// not create, so that no commit would prove it.
func (tx *Tx) unproven() bool {
	return slices.ContainsFunc(tx.assumed, func(key []byte) bool {
		return !slices.ContainsFunc(tx.changes, func(c txn.Change) bool { return bytes.Equal(c.Record.Key, key) })
	})
}

// loadBases loads the index rows of the keys that the command changes, and has not read one by one, so that the commit
// can compare and swap them.
func (tx *Tx) loadBases(ctx context.Context) error {
	var missing []int
	var keys [][]byte
	tx.bases = slices.Grow(tx.bases, len(tx.changes))
	for i := range tx.changes {
		prev, e := tx.changes[i].Prev, indexEntry{}
		known := true // or it is a change of a key that was changed before
		switch {
		case prev == nil:
			e = tx.batch.read[string(tx.changes[i].Record.Key)]
		case prev.ModRevision < tx.rev && tx.batch.changed.Get(prev.Key) == nil:
			if e = tx.batch.read[string(prev.Key)]; !e.of(prev) {
				e, known = tx.prefetch.base(prev)
			}
		}
		if tx.bases = append(tx.bases, e); !known {
			missing, keys = append(missing, i), append(keys, prev.Key)
		}
	}
	entries, err := tx.batch.p.entriesOf(ctx, keys)
	if err != nil {
		return err
	}
	for n, i := range missing {
		if tx.bases[i] = entries[n]; !tx.bases[i].of(tx.changes[i].Prev) {
			// Another node leads, or the index cache or the view is wrong, which would be a bug.
			return tx.stale(ctx, keys[n])
		}
	}
	return nil
}
