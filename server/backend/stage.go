package backend

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/tso"
)

// errNextBatch: the command asks for a revision that an earlier command of the
// same batch makes; it can only be answered once that is committed.
var errNextBatch = errors.New("backend: must wait for the next batch")

// batchState is the newest state as the commands of one batch see it: what the
// table holds, plus the accepted changes of the commands before. It belongs to
// the sequencer.
type batchState struct {
	b     *Backend
	l     *leader // nil in read-only stages
	base  int64   // the frontier: what the table holds
	alloc *tso.Allocation

	keys    map[string]*keyState
	changes []change
	leases  map[int64]*coder.Lease // changed leases; nil is a revoked one
	meta    map[string][]byte      // other rows; nil is a removed one
	auth    *AuthRows              // users and roles; nil in read-only stages
	bytes   int
	// presume allows keys to be presumed absent; presumed are those that were.
	presume  bool
	presumed [][]byte
	after    []func() // run once committed, in order, before anybody is answered
	stage    stage    // of the command at hand; one serves all, for its memory
}

// keyState is a key that the batch changes.
type keyState struct {
	base    indexEntry    // what the table holds
	rec     *coder.Record // what it shall hold
	changes int
}

// change is one version that the batch writes.
type change struct {
	rec *coder.Record
	// prev is the live version it replaces: metadata, and the value if full.
	prev     *coder.Record
	prevFull bool
}

func newBatchState(l *leader) *batchState {
	return &batchState{
		b: l.Backend, l: l, base: l.tso.Frontier(), alloc: l.tso.Allocate(),
		keys: make(map[string]*keyState), leases: make(map[int64]*coder.Lease), meta: make(map[string][]byte),
		auth: l.AuthRows(),
	}
}

// full reports whether another command should rather go into the next commit.
func (s *batchState) full() bool {
	return 2*len(s.changes)+len(s.meta)+len(s.leases) >= s.b.cfg.BatchRows || s.bytes >= s.b.cfg.BatchBytes
}

// empty reports whether there is nothing to commit.
func (s *batchState) empty() bool {
	return len(s.changes) == 0 && len(s.leases) == 0 && len(s.meta) == 0
}

// begin opens the stage of one command that has read a ahead, and ends the one before.
func (s *batchState) begin(a *ahead) *stage {
	st := &s.stage
	if st.batchState == nil {
		*st = stage{batchState: s, local: make(map[string]*coder.Record), bases: make(map[string]indexEntry)}
	}
	clear(st.local)
	clear(st.bases)
	if a.large() { // need not grow step by step
		st.local, st.bases = make(map[string]*coder.Record, a.keys), make(map[string]indexEntry, a.keys)
	}
	*st = stage{
		batchState: s, ahead: a, rev: s.alloc.Peek(), local: st.local, bases: st.bases,
		own: st.own[:0], ownPresumed: st.ownPresumed[:0], onCommitted: st.onCommitted[:0],
	}
	return st
}

// stage is one command's view of the batch's state, and the changes it makes:
// kept by accept, or dropped with the stage.
type stage struct {
	*batchState
	// readOnly stages run outside the sequencer, at a frontier that commits may
	// have passed: they must not look at the index cache.
	readOnly    bool
	ahead       *ahead // what the command has read ahead, nil if nothing
	rev         int64  // the revision of its changes, if it makes any
	local       map[string]*coder.Record
	bases       map[string]indexEntry
	own         []change
	ownLeases   map[int64]*coder.Lease
	ownMeta     map[string][]byte
	ownAuth     *AuthRows
	fresh       [][]byte // keys that may be presumed absent, of which ownPresumed were
	ownPresumed [][]byte
	onCommitted []func()
}

// readStage returns a stage to evaluate reads at the frontier base.
func (b *Backend) readStage(base int64) *stage {
	return &stage{batchState: &batchState{b: b, base: base}, readOnly: true, rev: base + 1, bases: make(map[string]indexEntry)}
}

// accept makes the stage's changes part of the batch, and takes its revision if
// it wrote any key.
func (s *batchState) accept(st *stage) {
	if len(st.own) > 0 {
		s.alloc.Take()
	}
	if len(s.keys) == 0 && len(st.own) > aloneKeys {
		s.keys = make(map[string]*keyState, len(st.own))
	}
	for _, c := range st.own {
		k := string(c.rec.Key)
		ks := s.keys[k]
		if ks == nil {
			ks = &keyState{base: st.bases[k]}
			s.keys[k] = ks
		}
		ks.rec = c.rec
		ks.changes++
		s.bytes += 2*len(c.rec.Key) + len(c.rec.Value) + 200
	}
	s.changes = append(s.changes, st.own...)
	s.presumed = append(s.presumed, st.ownPresumed...)
	for id, l := range st.ownLeases {
		s.leases[id] = l
	}
	for k, v := range st.ownMeta {
		s.meta[k] = v
	}
	if st.ownAuth != nil {
		s.auth = st.ownAuth
	}
	s.after = append(s.after, st.onCommitted...)
}

// revision returns the revision that a read in the stage sees: the command's own
// once it has written.
func (st *stage) revision() int64 {
	if len(st.own) > 0 {
		return st.rev
	}
	return st.rev - 1
}

// pending returns the uncommitted record of key, which may be a tombstone.
func (st *stage) pending(key []byte) *coder.Record {
	if r := st.local[string(key)]; r != nil {
		return r
	}
	if ks := st.keys[string(key)]; ks != nil {
		return ks.rec
	}
	return nil
}

// current returns key's metadata in the newest state, nil if it does not exist.
func (st *stage) current(ctx context.Context, key []byte) (*coder.Record, error) {
	if r := st.pending(key); r != nil {
		return liveOrNil(r), nil
	}
	if st.readOnly {
		return st.b.reader.at(st.base).get(ctx, key, false)
	}
	if st.presumeAbsent(key) {
		st.bases[string(key)] = indexEntry{}
		return nil, nil
	}
	e, err := st.l.indexOf(ctx, key)
	if err != nil {
		return nil, err
	}
	st.bases[string(key)] = e
	if !e.live() {
		return nil, nil
	}
	return e.Record(key), nil
}

// currentFull is current with the value.
func (st *stage) currentFull(ctx context.Context, key []byte) (*coder.Record, error) {
	r, err := st.current(ctx, key)
	if err != nil || r == nil || st.pending(key) != nil {
		return r, err
	}
	full, err := st.b.reader.at(st.base).get(ctx, key, true)
	if err != nil || st.readOnly {
		return full, err
	}
	if full == nil || full.ModRevision != r.ModRevision {
		return nil, st.l.stale(ctx, key)
	}
	return full, nil
}

// stale returns errStale for key, whose index row and record differ, or why this node
// no longer leads.
func (l *leader) stale(ctx context.Context, key []byte) error {
	if err := l.confirm(ctx); err != nil {
		return err
	}
	return fmt.Errorf("%w: %q", errStale, key)
}

func liveOrNil(r *coder.Record) *coder.Record {
	if r.Tombstone {
		return nil
	}
	return r
}

// write stages a new version of a key whose live version, if any, is prev.
func (st *stage) write(rec, prev *coder.Record, prevFull bool) {
	rec.ModRevision = st.rev
	rec.Sub = int32(len(st.own))
	st.local[string(rec.Key)] = rec
	st.own = append(st.own, change{rec: rec, prev: prev, prevFull: prevFull})
}

// delete stages the deletion of the live version prev.
func (st *stage) delete(prev *coder.Record, prevFull bool) {
	st.write(&coder.Record{Key: prev.Key, Tombstone: true}, prev, prevFull)
}

// setMeta stages a row of the server's own; a nil value removes it.
func (st *stage) setMeta(key, value []byte) {
	if st.ownMeta == nil {
		st.ownMeta = make(map[string][]byte)
	}
	st.ownMeta[string(key)] = value
}

// metaPending reports whether an earlier command of the batch changes a row of
// the server's own.
func (st *stage) metaPending(key []byte) bool {
	_, ok := st.meta[string(key)]
	return ok
}

// committed registers what to do once the changes are durable.
func (st *stage) committed(f func()) { st.onCommitted = append(st.onCommitted, f) }

// pendingIn returns the uncommitted records of kr in key order, tombstones
// included.
func (st *stage) pendingIn(kr KeyRange) []*coder.Record {
	var found []*coder.Record
	for _, r := range st.local {
		if coder.Contains(kr.Key, kr.End, r.Key) {
			found = append(found, r)
		}
	}
	for k, ks := range st.keys {
		if st.local[k] == nil && coder.Contains(kr.Key, kr.End, ks.rec.Key) {
			found = append(found, ks.rec)
		}
	}
	slices.SortFunc(found, func(a, b *coder.Record) int { return bytes.Compare(a.Key, b.Key) })
	return found
}

// count returns how many keys of kr, a range of several, exist in the newest state.
func (st *stage) count(ctx context.Context, kr KeyRange) (int64, error) {
	n, err := st.b.reader.at(st.base).count(ctx, kr)
	for _, rec := range st.pendingIn(kr) {
		base := st.bases[string(rec.Key)]
		if ks := st.keys[string(rec.Key)]; ks != nil {
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
func (st *stage) list(ctx context.Context, kr KeyRange, needValue bool) ([]*coder.Record, error) {
	return st.listSome(ctx, kr, needValue, math.MaxInt64)
}

// listSome is list, but stops at most records.
func (st *stage) listSome(ctx context.Context, kr KeyRange, needValue bool, most int64) ([]*coder.Record, error) {
	if len(kr.End) == 0 {
		get := st.current
		if needValue {
			get = st.currentFull
		}
		r, err := get(ctx, kr.Key)
		if err != nil || r == nil {
			return nil, err
		}
		return []*coder.Record{r}, nil
	}
	pending := st.pendingIn(kr)
	var live []*coder.Record
	enough := func() bool { return int64(len(live)) >= most }
	takePending := func(before []byte) (sameKey bool) {
		for len(pending) > 0 && (before == nil || bytes.Compare(pending[0].Key, before) <= 0) {
			sameKey = before != nil && bytes.Equal(pending[0].Key, before)
			if !pending[0].Tombstone {
				live = append(live, pending[0])
			}
			pending = pending[1:]
		}
		return sameKey
	}
	presumed := false
	take := func(records []*coder.Record) bool {
		for _, rec := range records {
			if presumed = st.presumedAbsent(rec.Key); presumed || enough() {
				return false
			}
			if !takePending(rec.Key) {
				live = append(live, rec)
			}
		}
		return !enough()
	}
	var err error
	want := int64(0) // everything
	if most < math.MaxInt64 {
		want = most
	}
	if read := st.ahead.of(kr, needValue); read != nil {
		take(read.current())
	} else {
		err = st.b.reader.at(st.base).scan(ctx, kr, needValue, want, take)
	}
	if presumed {
		return nil, errPresumed
	}
	if !enough() {
		takePending(nil)
	}
	return live[:min(int64(len(live)), most)], err
}

// loadBases makes the index rows of records, which list returned, known to the stage,
// so that their changes can be compared and swapped. Sequencer only.
func (st *stage) loadBases(ctx context.Context, records []*coder.Record) error {
	for chunk := range slices.Chunk(records, scanPage) {
		var missing []string
		var bare []*coder.Record
		for _, rec := range chunk {
			if st.pending(rec.Key) != nil {
				continue // the batch knows it
			}
			k := string(rec.Key)
			if e, ok := st.ahead.base(rec); ok {
				st.bases[k] = e
				continue
			}
			if e, ok := st.l.index.get(k); ok && e.of(rec) {
				st.bases[k] = e
			} else {
				missing, bare = append(missing, k), append(bare, rec)
			}
		}
		if len(missing) == 0 {
			continue
		}
		entries, err := st.l.readIndex(ctx, missing)
		if err != nil {
			return err
		}
		for i, e := range entries {
			if !e.of(bare[i]) {
				// Somebody else leads, or memory is wrong: the second must not happen.
				return st.l.stale(ctx, bare[i].Key)
			}
			st.bases[missing[i]] = e
		}
	}
	return nil
}
