package export

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

// Snapshot is the content of the table as of one revision. It holds no transaction open:
// versions of a revision never change, and compaction removes only what no revision after
// its mark needs.
type Snapshot struct {
	Meta
	Revision int64

	e *Exporter
	// leases are those that existed before Revision was chosen. The value says whether
	// they still existed afterwards.
	leases map[coder.Lease]bool
	held   map[int64]bool              // by keys of Revision
	verify func(context.Context) error // that the table still has Revision; nil: the node finds that out
}

// Version is one version of a key. Next is the revision of the version that replaced it,
// 0 if there is none up to the revision of the snapshot.
type Version struct {
	*coder.Record
	Next int64
}

// Needed reports whether a revision of at least compacted sees the version, or its
// watchers do. Of a tombstone that is its own revision only.
func (v Version) Needed(compacted int64) bool {
	if v.Tombstone {
		return v.ModRevision >= compacted
	}
	return v.Next == 0 || v.Next > compacted
}

// OpenSnapshot returns a snapshot of a revision that includes every write acknowledged before the
// call. Errors: those of linearizable reads.
func (e *Exporter) OpenSnapshot(ctx context.Context, as auth.Permit) (*Snapshot, error) {
	before, err := e.leaseRows(ctx)
	if err != nil {
		return nil, err
	}
	rev, err := e.node.ReadRevision(ctx, as, true)
	if err != nil {
		return nil, err
	}
	s := &Snapshot{Meta: e.node.Meta(), Revision: rev, e: e, leases: make(map[coder.Lease]bool),
		held: make(map[int64]bool)}
	after, err := e.leaseRows(ctx)
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

func (e *Exporter) leaseRows(ctx context.Context) (map[int64]coder.Lease, error) {
	lo, hi := coder.LeaseBounds()
	rows := make(map[int64]coder.Lease)
	for row, err := range e.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return nil, err
		}
		l, err := coder.DecodeLease(row.Key, row.Value)
		if err != nil {
			return nil, err
		}
		rows[l.ID] = l
	}
	return rows, nil
}

// passingLease is the TTL, in seconds, of a lease that was granted and ended while the
// snapshot was opened, but that keys of the snapshot have.
const passingLease = 1

// Leases returns the leases, after a call of Versions. A lease makes no revision, so some
// may have been granted after the snapshot's revision; they have no keys. No lease of a
// key is missing.
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
	// unsettledRows and unsettledBytes bound the versions held back by a versionScan.
	unsettledRows  = 1000
	unsettledBytes = 4 << 20
)

// Versions calls emit with the versions of all keys up to the snapshot's revision: those of a key by revision, the keys
// nearly in order, and then the tombstones. It returns the compact revision, at most the snapshot's. All versions that
// are Needed at it were emitted, and perhaps some others. Versions reads the version rows once. emit may keep the
// records. Errors: emit's, mvcc.ErrCompacted if the compact revision has passed the snapshot's, the database's.
func (s *Snapshot) Versions(ctx context.Context, emit func(Version) error) (compacted int64, err error) {
	scan := &versionScan{s: s, emit: emit}
	if err := scan.run(ctx); err != nil {
		return 0, err
	}
	if err := s.tombstones(ctx, emit); err != nil {
		return 0, err
	}
	var replaced error
	if s.verify != nil {
		replaced = s.verify(ctx)
	}
	compacted, err = s.e.node.Mark(ctx)
	switch {
	case err != nil:
		return 0, err
	case compacted > s.Revision:
		return 0, mvcc.ErrCompacted // that removes rows which verify reads
	}
	return compacted, replaced
}

// tombstones emits those that are Needed.
func (s *Snapshot) tombstones(ctx context.Context, emit func(Version) error) error {
	mark, err := s.e.node.Mark(ctx)
	if err != nil {
		return err
	}
	err = s.e.eachTombstone(ctx, mark, s.Revision, func(rec *coder.Record) error { return emit(Version{Record: rec}) })
	if errors.As(err, new(*watch.CompactedError)) {
		return nil // a new compaction has removed some, which are no longer Needed
	}
	return err
}

// eachTombstone calls f with the tombstones of revisions in [from, to]. It reads the log, which alone has the Sub of
// each. Errors: those of history.Log.EachChange.
func (e *Exporter) eachTombstone(ctx context.Context, from, to int64, f func(*coder.Record) error) error {
	every := []byte{0} // as a key and as an end: all keys
	return history.New(e.store, e.node.Mark).EachChange(ctx, every, every, max(from, 1), to,
		func(c coder.Change, _ time.Time) error {
			if !c.Tombstone {
				return nil
			}
			return f(c.Deletion())
		})
}

// versionScan walks over the version rows, page by page. The last version of a key may have been deleted: its index
// row says so, or a version row if the key was created again. Compaction may have removed both between two pages. So
// the scan holds the last version of each key back until it has looked it up.
type versionScan struct {
	s    *Snapshot
	emit func(Version) error

	last      *coder.Record   // of the current key
	unsettled []*coder.Record // last versions of the keys before, in their order
	bytes     int
}

func (c *versionScan) run(ctx context.Context) error {
	lo, hi := coder.VersionBounds([]byte{0}, []byte{0})
	for rec, err := range history.EachVersion(ctx, c.s.e.store, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		if rec.ModRevision > c.s.Revision {
			continue
		}
		if err := c.add(ctx, rec); err != nil {
			return err
		}
	}
	if err := c.holdBack(ctx); err != nil {
		return err
	}
	return c.finish(ctx)
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
	if prev.Tombstone || !rec.Tombstone && rec.CreateRevision > prev.ModRevision {
		return nil // compaction removed a tombstone between them
	}
	return c.emit(Version{Record: prev, Next: rec.ModRevision})
}

// holdBack ends the current key.
func (c *versionScan) holdBack(ctx context.Context) error {
	last := c.last
	if c.last = nil; last == nil || last.Tombstone {
		return nil
	}
	c.unsettled = append(c.unsettled, last)
	c.bytes += len(last.Key) + len(last.Value)
	if len(c.unsettled) < unsettledRows && c.bytes < unsettledBytes {
		return nil
	}
	return c.finish(ctx)
}

// finish emits the versions that are held back, except for those that compaction has removed.
func (c *versionScan) finish(ctx context.Context) error {
	next, err := c.next(ctx)
	if err != nil {
		return err
	}
	for i, rec := range c.unsettled {
		switch {
		case next[i] == removed:
			continue
		case next[i] == 0 && rec.Lease != 0:
			c.s.held[rec.Lease] = true
		}
		if err := c.emit(Version{Record: rec, Next: next[i]}); err != nil {
			return err
		}
	}
	c.unsettled, c.bytes = nil, 0
	return nil
}

// removed is in place of the next revision of a version that compaction removed with its tombstone.
const removed = -1

// next returns Version.Next of the unsettled versions. For nearly all keys the index row, which is small, is enough to
// decide.
func (c *versionScan) next(ctx context.Context) ([]int64, error) {
	if len(c.unsettled) == 0 {
		return nil, nil
	}
	lo, _ := coder.IndexBounds(c.unsettled[0].Key, nil)
	_, hi := coder.IndexBounds(c.unsettled[len(c.unsettled)-1].Key, nil)
	current, err := c.s.e.index(ctx, lo, hi, func(coder.Index) bool { return true })
	if err != nil {
		return nil, err
	}
	next := make([]int64, len(c.unsettled))
	var unsure []int
	var ranges []sqlstore.Partition
	for i, rec := range c.unsettled {
		switch x, ok := current[string(rec.Key)]; {
		case !ok:
			next[i] = removed
		case x.ModRevision == rec.ModRevision:
		case x.ModRevision > c.s.Revision && x.PrevRevision == rec.ModRevision && !x.Gap:
		case x.ModRevision <= c.s.Revision:
			next[i] = x.ModRevision // a tombstone: all other versions have rows
		default:
			unsure = append(unsure, i)
			lo, hi := coder.VersionsUpTo(rec.Key, c.s.Revision)
			ranges = append(ranges, sqlstore.Partition{Start: lo, End: hi})
		}
	}
	rows, err := c.s.e.store.LatestAtOrBefore(ctx, ranges)
	if err != nil {
		return nil, fmt.Errorf("looking versions up again: %w", err)
	}
	for n, i := range unsure {
		// A version is removed together with the tombstone after it, or earlier.
		rev := int64(0)
		if rows[n].Key != nil {
			if _, rev, err = coder.DecodeVersionKey(rows[n].Key); err != nil {
				return nil, err
			}
		}
		switch {
		case rev < c.unsettled[i].ModRevision:
			next[i] = removed
		case rev > c.unsettled[i].ModRevision:
			next[i] = rev
		}
	}
	return next, nil
}
