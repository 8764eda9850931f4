package backend

import (
	"bytes"
	"context"
	"fmt"
	"maps"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Snapshot is all that the table holds as of one revision, without a transaction
// being held: versions of a revision never change, and compaction takes only what no
// revision behind its mark needs.
type Snapshot struct {
	Revision int64
	// Term and Sequence are those of the chain row as this node knows it.
	Term, Sequence int64
	Auth           *AuthRows
	Alarms         []Alarm

	b *Backend
	// leases are those that were there before Revision was fixed; the value says
	// whether they still were afterwards.
	leases map[coder.Lease]bool
	held   map[int64]bool // by keys of Revision
}

// SnapshotVersion is one version of a key. Next is the revision of the version that
// replaced it, 0 if none did up to the snapshot's.
type SnapshotVersion struct {
	*coder.Record
	Next int64
}

// Needed reports whether a revision of at least compacted sees the version, or its
// watchers do. Of a tombstone that is its own revision only.
func (v SnapshotVersion) Needed(compacted int64) bool {
	if v.Tombstone {
		return v.ModRevision >= compacted
	}
	return v.Next == 0 || v.Next > compacted
}

// OpenSnapshot fixes a revision that has all that was acknowledged before the call.
// Errors: those of linearizable reads.
func (b *Backend) OpenSnapshot(ctx context.Context) (*Snapshot, error) {
	before, err := b.leaseRows(ctx)
	if err != nil {
		return nil, err
	}
	rev, err := b.boundFrontier(ctx, true)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{b: b, Revision: rev, Auth: b.AuthRows(), Alarms: b.Alarms(), leases: make(map[coder.Lease]bool), held: make(map[int64]bool)}
	chain := b.seen.Load()
	s.Term, s.Sequence = chain.Term, chain.Sequence
	after, err := b.leaseRows(ctx)
	if err != nil {
		return nil, err
	}
	for id, l := range before {
		if _, still := after[id]; !still {
			s.leases[l] = false
		}
	}
	for _, l := range after {
		s.leases[l] = true
	}
	return s, nil
}

func (b *Backend) leaseRows(ctx context.Context) (map[int64]coder.Lease, error) {
	lo, hi := coder.LeaseBounds()
	it := b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	rows := make(map[int64]coder.Lease)
	for it.Next() {
		l, err := coder.DecodeLease(it.Key(), it.Value())
		if err != nil {
			return nil, err
		}
		rows[l.ID] = l
	}
	return rows, it.Err()
}

// passingLease is the TTL, in seconds, of a lease that keys of the snapshot have but
// that came and went while it was opened: they were about to be deleted.
const passingLease = 1

// Leases returns the leases, once Versions has gone through the keys they hold. A
// lease makes no revision, so there may be some among them that were granted a
// moment later, without keys; but none that a key has is missing.
func (s *Snapshot) Leases() []coder.Lease {
	var leases []coder.Lease
	missing := maps.Clone(s.held)
	for l, still := range s.leases {
		if still || s.held[l.ID] {
			leases = append(leases, l)
		}
		delete(missing, l.ID)
	}
	for id := range missing {
		leases = append(leases, coder.Lease{ID: id, TTL: passingLease})
	}
	return leases
}

const (
	// unsettledRows and unsettledBytes bound the versions that wait to be looked up
	// once more.
	unsettledRows  = 1000
	unsettledBytes = 4 << 20
)

// Versions calls emit with the versions of all keys up to the snapshot's revision, nearly
// in the order of keys, and of a key in that of revisions. It returns the compact
// revision, at most the snapshot's: the versions that are Needed at it are complete,
// and of others some may have been emitted. It reads the version rows once. emit may
// keep the records. Errors: emit's, ErrCompacted if compaction overtook the
// snapshot's revision, the database's.
func (s *Snapshot) Versions(ctx context.Context, emit func(SnapshotVersion) error) (compacted int64, err error) {
	scan := &versionScan{s: s, emit: emit}
	if err := scan.run(ctx); err != nil {
		return 0, err
	}
	compacted, err = s.b.mark(ctx)
	switch {
	case err != nil:
		return 0, err
	case compacted > s.Revision:
		return 0, ErrCompacted
	}
	return compacted, nil
}

// versionScan walks over the version rows. Pages are read one after the other, and
// compaction may take a tombstone, and the version before it, after the latter was
// read and before the former would have been: the version would come back to life.
// So the last version of each key is held back until it was looked up again.
type versionScan struct {
	s    *Snapshot
	emit func(SnapshotVersion) error

	last      *coder.Record   // of the key at hand
	unsettled []*coder.Record // last versions of the keys before, in their order
	bytes     int
}

func (c *versionScan) run(ctx context.Context) error {
	lo, hi := coder.VersionBounds([]byte{0}, []byte{0})
	it := c.s.b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	for it.Next() {
		key, rev, err := coder.DecodeVersionKey(it.Key())
		if err != nil {
			return err
		}
		if rev > c.s.Revision {
			continue
		}
		rec, err := coder.DecodeVersion(key, rev, it.Value())
		if err != nil {
			return err
		}
		if err := c.add(ctx, rec); err != nil {
			return err
		}
	}
	if err := it.Err(); err != nil {
		return err
	}
	if err := c.holdBack(ctx); err != nil {
		return err
	}
	return c.settle(ctx)
}

func (c *versionScan) add(ctx context.Context, rec *coder.Record) error {
	prev := c.last
	if prev == nil || !bytes.Equal(prev.Key, rec.Key) {
		if err := c.holdBack(ctx); err != nil {
			return err
		}
		c.last = rec
		return nil
	}
	c.last = rec
	if !prev.Tombstone && !rec.Tombstone && rec.CreateRevision > prev.ModRevision {
		return nil // a tombstone lay between them until compaction took both
	}
	return c.emit(SnapshotVersion{Record: prev, Next: rec.ModRevision})
}

// holdBack ends the key at hand.
func (c *versionScan) holdBack(ctx context.Context) error {
	if c.last == nil {
		return nil
	}
	c.unsettled = append(c.unsettled, c.last)
	c.bytes += len(c.last.Key) + len(c.last.Value)
	c.last = nil
	if len(c.unsettled) < unsettledRows && c.bytes < unsettledBytes {
		return nil
	}
	return c.settle(ctx)
}

// settle emits the last versions that are held back, but for those that compaction
// has taken.
func (c *versionScan) settle(ctx context.Context) error {
	gone, err := c.gone(ctx)
	if err != nil {
		return err
	}
	for _, rec := range c.unsettled {
		if gone[string(rec.Key)] {
			continue
		}
		if rec.Lease != 0 && !rec.Tombstone {
			c.s.held[rec.Lease] = true
		}
		if err := c.emit(SnapshotVersion{Record: rec}); err != nil {
			return err
		}
	}
	c.unsettled, c.bytes = nil, 0
	return nil
}

// gone returns the keys of unsettled versions whose tombstone was taken by
// compaction before it was read. The index rows, which are small, tell that of
// nearly all.
func (c *versionScan) gone(ctx context.Context) (map[string]bool, error) {
	mark, err := c.s.b.mark(ctx)
	if err != nil {
		return nil, err
	}
	var below []*coder.Record
	for _, rec := range c.unsettled {
		if rec.ModRevision < mark && !rec.Tombstone {
			below = append(below, rec)
		}
	}
	if len(below) == 0 {
		return nil, nil
	}
	lo, _ := coder.IndexBounds(below[0].Key, nil)
	_, hi := coder.IndexBounds(below[len(below)-1].Key, nil)
	it := c.s.b.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	current := make(map[string]coder.Index)
	for it.Next() {
		key, err := coder.DecodeIndexKey(it.Key())
		if err != nil {
			return nil, err
		}
		if current[string(key)], err = coder.DecodeIndex(it.Value()); err != nil {
			return nil, err
		}
	}
	if err := it.Err(); err != nil {
		return nil, err
	}
	gone := make(map[string]bool)
	var keys [][]byte
	var unsure []*coder.Record
	for _, rec := range below {
		x, ok := current[string(rec.Key)]
		switch {
		case !ok:
			gone[string(rec.Key)] = true
		case x.ModRevision == rec.ModRevision, x.PrevRevision == rec.ModRevision && !x.Gap:
		default:
			keys, unsure = append(keys, coder.EncodeVersionKey(rec.Key, rec.ModRevision)), append(unsure, rec)
		}
	}
	// A version is removed together with the tombstone behind it, or before.
	values, err := c.s.b.store.MultiGet(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("looking versions up again: %w", err)
	}
	for i, v := range values {
		if v == nil {
			gone[string(unsure[i].Key)] = true
		}
	}
	return gone, nil
}
