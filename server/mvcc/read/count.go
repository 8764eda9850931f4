package read

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

// Count returns how many keys of span exist. Every page of a list reports it, so it
// must not cost what the range holds: the view adds up segments and counted spans.
func (r *Reading) Count(ctx context.Context, span coder.Span) (int64, error) {
	n, err := r.countSpans(ctx, span)
	if err == nil && r.unchecked { // else the view remembers it
		r.counted = append(r.counted, countedSpan{span, n})
	}
	return n, err
}

// countSpans counts what the view does not know, which it then does. If the view does
// not reach back to the reading's revision, it counts at the visible revision, and takes back
// what the log says was created and deleted since.
func (r *Reading) countSpans(ctx context.Context, span coder.Span) (int64, error) {
	for range countTries {
		c := spanCount{read: r}
		if ok, err := c.run(ctx, span); ok || err != nil {
			return c.n, err
		}
		r.readsTable()
		lo, hi := span.IndexBounds()
		if row, err := r.reader.store.SeekNth(ctx, lo, hi, r.reader.view.SpanKeys()); err != nil {
			return 0, err
		} else if row == nil {
			break // too few for a detour
		}
		c = spanCount{read: r.reader.At(max(r.reader.node.Revision(), r.rev))}
		ok, err := c.run(ctx, span)
		switch {
		case err != nil:
			return 0, err
		case !ok:
			continue
		case c.read.rev-r.rev > max(maxCountRoll, c.n):
			return r.countTable(ctx, span)
		}
		net, err := r.netCreated(ctx, span, r.rev, c.read.rev)
		return c.n - net, err
	}
	return r.countTable(ctx, span)
}

// countTable counts in the table. If keys changed after the revision, it counts at the
// visible revision, and takes back what the log says was created and deleted since, or looks at each
// key, whichever is faster.
func (r *Reading) countTable(ctx context.Context, span coder.Span) (int64, error) {
	r.readsTable()
	lo, hi := span.IndexBounds()
	at := r.rev
	for range countTries {
		n, newer, err := r.reader.store.Count(ctx, lo, hi, at)
		if err != nil {
			return 0, err
		}
		if newer == 0 {
			net, err := r.netCreated(ctx, span, r.rev, at)
			return n - net, err
		}
		visible := r.reader.node.Revision()
		if visible <= at || visible-r.rev >= logChangesPerLookup*newer {
			break
		}
		at = visible
	}
	return r.countEach(ctx, span)
}

// countEach counts by looking at every key, and looks up the older version of those
// that changed after the revision.
func (r *Reading) countEach(ctx context.Context, span coder.Span) (n int64, err error) {
	err = r.Scan(ctx, span, false, 0, func(records []*coder.Record) bool {
		n += int64(len(records))
		return true
	})
	return n, err
}

// netCreated returns by how many keys span grew in the revisions (after, upTo].
func (r *Reading) netCreated(ctx context.Context, span coder.Span, after, upTo int64) (net int64, err error) {
	err = r.reader.eachChange(ctx, after, upTo, func(c *coder.Change) {
		if span.Contains(c.Key) {
			net += c.Net()
		}
	})
	return net, err
}

// eachChange calls f for the changes in the log of the revisions (after, upTo], as far as
// compaction has not removed them.
func (r *Reader) eachChange(ctx context.Context, after, upTo int64, f func(*coder.Change)) error {
	if after >= upTo {
		return nil
	}
	lo, hi := coder.LogBounds(after+1, math.MaxInt64)
	for row, err := range r.store.Iter(ctx, sqlstore.Range{Start: lo, End: hi}) {
		if err != nil {
			return err
		}
		changes, err := coder.DecodeLog(row.Value)
		if err != nil {
			return err
		}
		for i := range changes {
			switch c := &changes[i]; {
			case c.Revision > upTo:
				return nil
			case c.Revision > after:
				f(c)
			}
		}
	}
	return nil
}
