package backend

import (
	"context"
	"math"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

const (
	// logChangesPerLookup is about how many changes of the log are read in the
	// time that looking up one key's older version takes.
	logChangesPerLookup = 50
	// maxCountRoll is how many revisions a count is carried back along the log
	// rather than counted at its revision; as many as it has keys are never too many.
	maxCountRoll = 5000
	// countTries is how often a count is tried that commits get in the way of.
	countTries = 3
)

// count returns how many keys of kr exist. Every page of a list says so, so it
// must not cost what the range holds: the cache of ranges counts segments, and
// what is between the ends of a large range is known piece by piece.
func (r *reading) count(ctx context.Context, kr KeyRange) (int64, error) {
	if n, ok := r.counts.get(kr, r.rev); ok {
		return n, nil
	}
	start, end := kr.bounds()
	n, ok := r.ranges.count(start, end, r.rev)
	if !ok {
		var err error
		if n, err = r.countPieces(ctx, kr); err != nil {
			return 0, err
		}
	}
	r.counted = append(r.counted, countedRange{kr, n})
	return n, nil
}

// countedRange is how many keys a range has at a reading's revision.
type countedRange struct {
	KeyRange
	n int64
}

// keepCounts remembers what was counted, once it is sure that compaction did not
// spoil it.
func (r *reading) keepCounts() {
	for _, c := range r.counted {
		r.counts.put(c.KeyRange, r.rev, c.n)
	}
	r.counted = nil
}

// countPieces counts what the map of pieces does not know, which is then known. If the
// map does not reach back to the reading's revision, it counts at the frontier, and
// takes back what the log says was created and deleted since.
func (r *reading) countPieces(ctx context.Context, kr KeyRange) (int64, error) {
	for range countTries {
		if r.pieces.reaches(r.rev) {
			c := pieceCount{reading: r}
			if ok, err := c.run(ctx, kr); ok || err != nil {
				return c.n, err
			}
			continue // it did when this began
		}
		r.table = true
		start, end := kr.bounds()
		lo, hi := indexBounds(start, end)
		if row, err := r.store.Skip(ctx, lo, hi, r.pieces.size); err != nil {
			return 0, err
		} else if row == nil {
			break // too few for a detour
		}
		c := pieceCount{reading: r.reader.at(max(r.frontier(), r.rev))}
		ok, err := c.run(ctx, kr)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			continue
		case c.rev-r.rev > max(maxCountRoll, c.n):
			return r.countTable(ctx, kr)
		}
		net, err := r.netCreated(ctx, kr, r.rev, c.rev)
		return c.n - net, err
	}
	return r.countTable(ctx, kr)
}

// countTable counts in the table.
func (r *reading) countTable(ctx context.Context, kr KeyRange) (int64, error) {
	r.table = true
	lo, hi := coder.IndexBounds(kr.Key, kr.End)
	n, newer, err := r.store.Count(ctx, lo, hi, r.rev)
	if err != nil || newer == 0 {
		return n, err
	}
	if frontier := r.frontier(); frontier > r.rev && frontier-r.rev < logChangesPerLookup*newer {
		return r.countBack(ctx, kr)
	}
	return r.countEach(ctx, kr)
}

// countBack counts at the frontier, and takes back what the log says was created
// and deleted since the revision.
func (r *reading) countBack(ctx context.Context, kr KeyRange) (int64, error) {
	lo, hi := coder.IndexBounds(kr.Key, kr.End)
	for range countTries {
		from := max(r.frontier(), r.rev)
		n, newer, err := r.store.Count(ctx, lo, hi, from)
		if err != nil {
			return 0, err
		}
		if newer == 0 {
			net, err := r.netCreated(ctx, kr, r.rev, from)
			return n - net, err
		}
	}
	return r.countEach(ctx, kr)
}

// countEach counts by looking at every key, and up the older version of those
// that changed behind the revision.
func (r *reading) countEach(ctx context.Context, kr KeyRange) (n int64, err error) {
	err = r.scan(ctx, kr, false, 0, func(records []*coder.Record) bool {
		n += int64(len(records))
		return true
	})
	return n, err
}

// netCreated returns by how many keys kr grew in the revisions (after, upTo].
func (r *reader) netCreated(ctx context.Context, kr KeyRange, after, upTo int64) (net int64, err error) {
	if after >= upTo {
		return 0, nil
	}
	lo, hi := coder.LogBounds(after+1, math.MaxInt64)
	it := r.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi})
	defer func() { _ = it.Close() }()
	for it.Next() {
		changes, err := coder.DecodeLog(it.Value())
		if err != nil {
			return 0, err
		}
		for _, c := range changes {
			switch {
			case c.Revision > upTo:
				return net, nil
			case c.Revision <= after || !coder.Contains(kr.Key, kr.End, c.Key):
			case c.Tombstone:
				net--
			case c.PrevRevision == 0:
				net++
			}
		}
	}
	return net, it.Err()
}
