package write

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// ErrNextBatch: the command depends on a change of an earlier command in the same batch that
// it cannot see before that is committed. The pipeline evaluates it again in the next batch.
var ErrNextBatch = errors.New("write: must wait for the next batch")

// begin returns the transaction of the next command, which has read a ahead. The one before
// must no longer be used.
func (s *batchState) begin(a *Prefetch) *Tx {
	tx := &s.tx
	if tx.batch == nil {
		*tx = Tx{batch: s, local: make(map[string]*coder.Record), bases: make(map[string]indexEntry)}
	}
	clear(tx.local)
	clear(tx.bases)
	if a.large() { // need not grow step by step
		tx.local, tx.bases = make(map[string]*coder.Record, a.keys), make(map[string]indexEntry, a.keys)
	}
	*tx = Tx{
		batch: s, ahead: a, rev: s.alloc.Peek(), local: tx.local, bases: tx.bases,
		own: tx.own[:0], ownPresumed: tx.ownPresumed[:0], onCommitted: tx.onCommitted[:0],
	}
	return tx
}

// Tx is a command's view of the newest state, and the changes that the command makes. They
// take effect only if Evaluate returns no error. A Tx must not be used after Evaluate has
// returned. Not safe for concurrent use.
type Tx struct {
	batch *batchState
	// now is the reading of a read-only transaction, nil in others. A read-only transaction is
	// evaluated outside the sequencer, and newer commits may exist: it must not use the index cache.
	now         *read.Reading
	ahead       *Prefetch // what the command has read ahead, nil if nothing
	rev         int64     // the revision of its changes, if it makes any
	local       map[string]*coder.Record
	bases       map[string]indexEntry
	own         []change
	ownLeases   map[int64]*coder.Lease
	ownMeta     map[string][]byte
	ownAuth     *auth.Rows
	fresh       [][]byte // keys that may be presumed absent, of which ownPresumed were
	ownPresumed [][]byte
	onCommitted []func()
	looks       int                   // calls of pendingIn
	sorted      *btree.BTreeG[string] // the changed keys of the batch and of tx; nil before there were more than fewLooks
}

// readOnly returns a transaction to evaluate what reads now.
func readOnly(now *read.Reading) *Tx {
	return &Tx{batch: &batchState{base: now.Revision()}, now: now, rev: now.Revision() + 1,
		bases: make(map[string]indexEntry)}
}

// reading returns a reading of the committed state.
func (tx *Tx) reading() *read.Reading {
	if tx.now != nil {
		return tx.now
	}
	return tx.batch.p.cfg.Reader.At(tx.batch.base)
}

// accept makes the changes of tx part of the batch. It takes a revision if tx changes a key.
func (s *batchState) accept(tx *Tx) {
	if len(tx.own) > 0 {
		s.alloc.Take()
	}
	if len(s.keys) == 0 && len(tx.own) > aloneKeys {
		s.keys = make(map[string]*keyState, len(tx.own))
	}
	for _, c := range tx.own {
		k := string(c.rec.Key)
		ks := s.keys[k]
		if ks == nil {
			ks = &keyState{base: tx.bases[k]}
			s.keys[k] = ks
		}
		ks.rec = c.rec
		ks.changes++
		s.bytes += 2*len(c.rec.Key) + len(c.rec.Value) + 200
	}
	s.changes = append(s.changes, tx.own...)
	s.presumed = append(s.presumed, tx.ownPresumed...)
	maps.Copy(s.leases, tx.ownLeases)
	maps.Copy(s.meta, tx.ownMeta)
	if tx.ownAuth != nil {
		s.auth = tx.ownAuth
	}
	s.after = append(s.after, tx.onCommitted...)
}

// pending returns the uncommitted record of key, which may be a tombstone.
func (tx *Tx) pending(key []byte) *coder.Record {
	if r := tx.local[string(key)]; r != nil {
		return r
	}
	if ks := tx.batch.keys[string(key)]; ks != nil {
		return ks.rec
	}
	return nil
}

// Get returns key's newest record, with its value if asked for, nil if it does not exist.
func (tx *Tx) Get(ctx context.Context, key []byte, value bool) (*coder.Record, error) {
	if r := tx.pending(key); r != nil {
		if r.Tombstone {
			return nil, nil
		}
		return r, nil
	}
	if tx.now != nil {
		return tx.now.Get(ctx, key, value)
	}
	if tx.presumeAbsent(key) {
		tx.bases[string(key)] = indexEntry{}
		return nil, nil
	}
	e, err := tx.batch.p.indexOf(ctx, key)
	if err != nil {
		return nil, err
	}
	tx.bases[string(key)] = e
	if !e.live() {
		return nil, nil
	}
	if !value {
		return e.Record(key), nil
	}
	full, err := tx.reading().Get(ctx, key, true)
	if err != nil {
		return nil, err
	}
	if full == nil || !e.of(full) {
		return nil, tx.batch.p.stale(ctx, key)
	}
	return full, nil
}

// stale returns errStale for key, whose rows changed while they were read, or the reason why
// this node no longer leads: then another leader may have changed them.
func (p *Pipeline) stale(ctx context.Context, key []byte) error {
	if err := p.cfg.Leader.VerifyLeader(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", errStale, key)
}

// write writes a new version of a key whose live version is prev, nil if it does not exist.
// With prevFull, prev has its value.
func (tx *Tx) write(rec, prev *coder.Record, prevFull bool) {
	rec.ModRevision = tx.rev
	rec.Sub = int32(len(tx.own))
	tx.local[string(rec.Key)] = rec
	if tx.sorted != nil {
		tx.sorted.ReplaceOrInsert(string(rec.Key))
	}
	tx.own = append(tx.own, change{rec: rec, prev: prev, prevFull: prevFull})
}

// Delete deletes the key whose live version is prev. With prevFull, prev has its value.
func (tx *Tx) Delete(prev *coder.Record, prevFull bool) {
	tx.write(&coder.Record{Key: prev.Key, Tombstone: true}, prev, prevFull)
}

// SetRow writes a row of the server that is not a key of a client. A nil value removes it.
func (tx *Tx) SetRow(key, value []byte) {
	if tx.ownMeta == nil {
		tx.ownMeta = make(map[string][]byte)
	}
	tx.ownMeta[string(key)] = value
}

// RowChanged reports whether an earlier command of the batch writes or removes the row.
func (tx *Tx) RowChanged(key []byte) bool {
	_, ok := tx.batch.meta[string(key)]
	return ok
}

// OnCommit registers f to be called on the sequencer after the changes have become durable
// and readable, before any request of the batch is answered.
func (tx *Tx) OnCommit(f func()) { tx.onCommitted = append(tx.onCommitted, f) }

// Revision returns the revision that a read in the transaction sees: the transaction's, once
// it has changed a key, else the one before.
func (tx *Tx) Revision() int64 {
	if len(tx.own) > 0 {
		return tx.rev
	}
	return tx.rev - 1
}

// Sequence returns the sequence that the fence row is going to have after the commit.
func (tx *Tx) Sequence() int64 { return tx.batch.p.cfg.Fence.Value().Sequence + 1 }

// AuthRows returns the users and roles after the earlier commands of the batch.
func (tx *Tx) AuthRows() *auth.Rows { return tx.batch.auth }

// SetAuth replaces the users and roles. The caller must write the changed rows with SetRow.
func (tx *Tx) SetAuth(rows *auth.Rows) { tx.ownAuth = rows }

// Lease returns the row of lease id after the earlier commands of the batch, false if the
// lease does not exist.
func (tx *Tx) Lease(id int64) (coder.Lease, bool) {
	for _, leases := range []map[int64]*coder.Lease{tx.ownLeases, tx.batch.leases} {
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

// SetLease writes the row of a lease; nil removes it.
func (tx *Tx) SetLease(id int64, l *coder.Lease) {
	if tx.ownLeases == nil {
		tx.ownLeases = make(map[int64]*coder.Lease)
	}
	tx.ownLeases[id] = l
}

// BatchLeases returns the rows of leases that the batch writes, with nil for those that it
// removes. The map has the changes of earlier commands, and in OnCommit those of all. The
// caller must not change it.
func (tx *Tx) BatchLeases() map[int64]*coder.Lease { return tx.batch.leases }

// fewLooks is how often a command looks for the changes in a range before it sorts all changes.
const fewLooks = 16

// pendingIn returns the uncommitted records of kr in key order, tombstones
// included.
func (tx *Tx) pendingIn(kr mvcc.KeyRange) []*coder.Record {
	var found []*coder.Record
	if tx.looks++; tx.looks > fewLooks {
		tx.sort()
		tx.sorted.AscendGreaterOrEqual(string(kr.Key), func(k string) bool {
			rec := tx.pending([]byte(k))
			if !coder.Contains(kr.Key, kr.End, rec.Key) {
				return false
			}
			found = append(found, rec)
			return true
		})
		return found
	}
	for _, r := range tx.local {
		if coder.Contains(kr.Key, kr.End, r.Key) {
			found = append(found, r)
		}
	}
	for k, ks := range tx.batch.keys {
		if tx.local[k] == nil && coder.Contains(kr.Key, kr.End, ks.rec.Key) {
			found = append(found, ks.rec)
		}
	}
	slices.SortFunc(found, func(a, b *coder.Record) int { return bytes.Compare(a.Key, b.Key) })
	return found
}

// sort makes sure that sorted exists.
func (tx *Tx) sort() {
	if tx.sorted != nil {
		return
	}
	tx.sorted = btree.NewOrderedG[string](32)
	for k := range tx.batch.keys {
		tx.sorted.ReplaceOrInsert(k)
	}
	for k := range tx.local {
		tx.sorted.ReplaceOrInsert(k)
	}
}

// count returns how many keys of kr, a range of several, exist in the newest state.
func (tx *Tx) count(ctx context.Context, kr mvcc.KeyRange) (int64, error) {
	n, err := tx.reading().Count(ctx, kr.Span())
	for _, rec := range tx.pendingIn(kr) {
		base := tx.bases[string(rec.Key)]
		if ks := tx.batch.keys[string(rec.Key)]; ks != nil {
			base = ks.base
		}
		switch {
		case base.live() && rec.Tombstone:
			n--
		case !base.live() && !rec.Tombstone:
			n++
		}
	}
	return n, err
}

// list returns the live records of kr in the newest state, in key order.
func (tx *Tx) list(ctx context.Context, kr mvcc.KeyRange, needValue bool) ([]*coder.Record, error) {
	return tx.listSome(ctx, kr, needValue, math.MaxInt64)
}

// listSome is list, but stops at most records.
func (tx *Tx) listSome(ctx context.Context, kr mvcc.KeyRange, needValue bool, most int64) ([]*coder.Record, error) {
	if len(kr.End) == 0 {
		r, err := tx.Get(ctx, kr.Key, needValue)
		if err != nil || r == nil {
			return nil, err
		}
		return []*coder.Record{r}, nil
	}
	live := overlay{newer: tx.pendingIn(kr)}
	enough := func() bool { return int64(len(live.records)) >= most }
	presumed := false
	take := func(records []*coder.Record) bool {
		for _, rec := range records {
			if presumed = tx.presumedAbsent(rec.Key); presumed || enough() {
				return false
			}
			live.add(rec)
		}
		return !enough()
	}
	var err error
	want := int64(0) // everything
	if most < math.MaxInt64 {
		want = most
	}
	if read := tx.ahead.of(kr, needValue); read != nil {
		take(tx.ahead.current(read))
	} else {
		err = tx.reading().Scan(ctx, kr.Span(), needValue, want, take)
	}
	if presumed {
		return nil, errPresumed
	}
	if !enough() {
		live.addNewer(nil)
	}
	return live.records[:min(int64(len(live.records)), most)], err
}

// overlay merges records of the table, which come in key order, with newer versions of some
// keys.
type overlay struct {
	records []*coder.Record // the merged ones, without tombstones
	newer   []*coder.Record // in key order, tombstones included
}

// add adds rec, or the newer version of its key, after the newer versions of the keys before.
func (o *overlay) add(rec *coder.Record) {
	if !o.addNewer(rec.Key) {
		o.records = append(o.records, rec)
	}
}

// addNewer adds the newer versions of the keys up to key, nil for all, and reports whether key
// has one.
func (o *overlay) addNewer(key []byte) (same bool) {
	for len(o.newer) > 0 && (key == nil || bytes.Compare(o.newer[0].Key, key) <= 0) {
		same = key != nil && bytes.Equal(o.newer[0].Key, key)
		if !o.newer[0].Tombstone {
			o.records = append(o.records, o.newer[0])
		}
		o.newer = o.newer[1:]
	}
	return same
}

// loadBases loads the index rows of records, which list has returned, so that the commit can
// compare and swap them.
func (tx *Tx) loadBases(ctx context.Context, records []*coder.Record) error {
	var missing []*coder.Record
	var keys [][]byte
	for _, rec := range records {
		if tx.pending(rec.Key) != nil {
			continue // an earlier command has loaded it
		}
		if e, ok := tx.ahead.base(rec); ok {
			tx.bases[string(rec.Key)] = e
		} else {
			missing, keys = append(missing, rec), append(keys, rec.Key)
		}
	}
	entries, err := tx.batch.p.entriesOf(ctx, keys)
	if err != nil {
		return err
	}
	for _, rec := range missing {
		e := entries[string(rec.Key)]
		if !e.of(rec) {
			// Another node leads, or the index cache or the view is wrong, which would be a bug.
			return tx.batch.p.stale(ctx, rec.Key)
		}
		tx.bases[string(rec.Key)] = e
	}
	return nil
}

// errPresumed: a key that was presumed absent was found during the evaluation, or the commit of
// a batch that presumed some conflicted. Nothing was written.
var errPresumed = errors.New("write: a key was presumed absent that may exist")

// presumeAbsent reports whether key is presumed absent: the command expects it to be, and it
// is not in the index cache.
func (tx *Tx) presumeAbsent(key []byte) bool {
	expected := slices.ContainsFunc(tx.fresh, func(k []byte) bool { return bytes.Equal(k, key) })
	if !expected {
		return false
	}
	if _, cached := tx.batch.p.index.peek(key); cached {
		return false
	}
	if !tx.presumedAbsent(key) {
		tx.ownPresumed = append(tx.ownPresumed, key)
	}
	return true
}

// presumedAbsent reports whether the command has presumed key absent.
func (tx *Tx) presumedAbsent(key []byte) bool {
	return slices.ContainsFunc(tx.ownPresumed, func(k []byte) bool { return bytes.Equal(k, key) })
}

// unproven reports whether the outcome depends on the absence of a key that the command does
// not create, so that no commit would prove it.
func (tx *Tx) unproven() bool {
	return slices.ContainsFunc(tx.ownPresumed, func(key []byte) bool { return tx.local[string(key)] == nil })
}
