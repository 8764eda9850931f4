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
	// maxCountRoll is how many revisions a known count is carried along the log
	// rather than counted anew.
	maxCountRoll = 5000
	// countTries is how often a count at the frontier is tried while commits land.
	countTries = 3
)

// count returns how many keys of kr exist. Every page of a list says so, so it
// must not cost what the range holds: the cache of ranges counts segments, and a
// count that was made before is carried to the revision by what the log says was
// created and deleted between.
func (r *reading) count(ctx context.Context, kr KeyRange) (int64, error) {
	if n, ok := r.counts.get(kr, r.rev); ok {
		return n, nil
	}
	start, end := kr.bounds()
	n, ok := r.ranges.count(start, end, r.rev)
	if !ok {
		r.table = true
		var err error
		if n, ok, err = r.carry(ctx, kr); err == nil && !ok {
			n, err = r.countOnce(ctx, kr)
		}
		if err != nil {
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
		r.counts.putBase(c.KeyRange, countBase{rev: r.rev, n: c.n})
	}
	r.counted = nil
}

// carry counts from the range's base, if it has one near enough.
func (r *reading) carry(ctx context.Context, kr KeyRange) (n int64, ok bool, err error) {
	base, ok := r.counts.base(kr)
	low, high := min(base.rev, r.rev), max(base.rev, r.rev)
	if !ok || high-low > maxCountRoll {
		return 0, false, nil
	}
	net, err := r.netCreated(ctx, kr, low, high)
	if err != nil {
		return 0, false, err
	}
	if mark, err := r.mark(ctx); err != nil || low < mark { // the log may have been cut
		return 0, false, err
	}
	if r.rev < base.rev {
		net = -net
	}
	return base.n + net, true, nil
}

// countTable counts in the table.
func (r *reading) countTable(ctx context.Context, kr KeyRange) (int64, error) {
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
			r.counts.putBase(kr, countBase{rev: from, n: n})
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
