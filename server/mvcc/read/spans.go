package read

import (
	"bytes"
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/keyspace"
)

// spanCount counts a range at one revision from what the view knows, and the rest in
// the table. The counted spans it finds there stay in the view. So the count of a range that is
// too large for the time of a request is completed by a later one, and concurrent requests
// share the work.
type spanCount struct {
	read  *Reading
	n     int64
	large bool // a counted span was found
}

// run counts span. It returns false if the view does not reach back to the revision, or
// no longer does.
func (c *spanCount) run(ctx context.Context, span coder.Span) (ok bool, err error) {
	for {
		n, rest, ok := c.read.reader.view.Count(span, c.read.rev)
		if c.n += n; !ok || rest == nil {
			return ok, nil
		}
		span.Start, err = c.countRemainder(ctx, rest)
		if err != nil || span.Start == nil || span.Empty() {
			return err == nil, err
		}
	}
}

// countRemainder counts the beginning of rest and returns where to continue: at its start
// again if the view knows it now.
func (c *spanCount) countRemainder(ctx context.Context, rest *keyspace.Remainder) (next []byte, err error) {
	upTo := rest.End
	if !rest.Within { // else it is smaller than a counted span may become
		if c.large { // concurrent requests probably count the same
			leave, err := c.enter(ctx, rest)
			if leave == nil {
				return rest.Start, err
			}
			defer leave()
		}
		if upTo, err = c.spanEnd(ctx, rest.Span); err != nil {
			return nil, err
		}
		if rest.Follows || !bytes.Equal(upTo, rest.End) {
			if !c.large {
				c.large = true
				return rest.Start, nil
			}
			if kept, err := c.keepSpan(ctx, coder.Span{Start: rest.Start, End: upTo}); kept || err != nil {
				return rest.Start, err
			}
		}
	}
	part := c.read.reader.At(c.read.rev)
	n, err := part.countTable(ctx, coder.Span{Start: rest.Start, End: upTo})
	c.n += n
	c.read.readsTable()
	return upTo, err
}

// enter waits until no other request counts spans, and takes up the stored counts. leave is
// nil if the beginning of rest is counted now.
func (c *spanCount) enter(ctx context.Context, rest *keyspace.Remainder) (leave func(), err error) {
	counting := c.read.reader.counting
	select {
	case counting <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = func() { <-counting }
	if err := c.read.reader.tryLoadCounts(ctx); err != nil {
		leave()
		return nil, err
	}
	if _, now, ok := c.read.reader.view.Count(rest.Span, c.read.rev); !ok || now == nil || now.Within ||
		!bytes.Equal(now.Start, rest.Start) {
		leave()
		return nil, nil
	}
	return leave, nil
}

// spanEnd returns where the counted span ends that span begins with: its end, if it has no
// more rows than that.
func (c *spanCount) spanEnd(ctx context.Context, span coder.Span) ([]byte, error) {
	lo, hi := span.IndexBounds()
	row, err := c.read.reader.store.SeekNth(ctx, lo, hi, c.read.reader.view.SpanKeys())
	if err != nil || row == nil {
		return span.End, err
	}
	return coder.DecodeIndexKey(row)
}

// keepSpan counts span for the view, at the visible revision. It returns false if that cannot be
// done, because its keys change too fast.
func (c *spanCount) keepSpan(ctx context.Context, span coder.Span) (kept bool, err error) {
	c.read.readsTable()
	lo, hi := span.IndexBounds()
	for range countTries {
		at := max(c.read.reader.node.Revision(), c.read.rev)
		n, newer, err := c.read.reader.store.Count(ctx, lo, hi, at)
		if err != nil {
			return false, err
		}
		if newer > 0 {
			continue
		}
		// A key deleted after at may be gone if compaction got there.
		if mark, err := c.read.reader.node.Mark(ctx); err != nil || at < mark {
			return false, err
		}
		span = coder.Span{Start: bytes.Clone(span.Start), End: bytes.Clone(span.End)} // the request's
		c.read.reader.view.AddCounts(coder.Counts{Revision: at, Spans: []coder.CountedSpan{{Span: span, Keys: n}}})
		return true, nil
	}
	return false, nil
}
