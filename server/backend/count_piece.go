package backend

import (
	"bytes"
	"context"

	"github.com/sqlbrain/sqlbrain/coder"
)

// pieceCount counts a range at one revision from what the map of pieces knows, and
// the rest in the table. What it finds there stays in the map, so the count of a
// range too large for the time of a request comes to an end with a later one, and
// requests that count the same do it together.
type pieceCount struct {
	*reading
	n     int64
	large bool // a piece was found
}

// run counts kr. It returns false if the map does not reach back to the revision
// any more.
func (c *pieceCount) run(ctx context.Context, kr KeyRange) (ok bool, err error) {
	from, end := kr.bounds()
	for {
		n, rest, ok := c.pieces.count(from, end, c.rev)
		if c.n += n; !ok || rest == nil {
			return ok, nil
		}
		from, err = c.countStretch(ctx, rest)
		if err != nil || from == nil || !before(from, end) {
			return err == nil, err
		}
	}
}

// countStretch counts the beginning of t and returns where to go on: at its start
// again if that is in the map now.
func (c *pieceCount) countStretch(ctx context.Context, t *stretch) (next []byte, err error) {
	upTo := t.end
	if !t.within { // else it is smaller than a piece may become
		if c.large { // others probably count the same, and would look for the same pieces
			leave, err := c.enter(ctx, t)
			if leave == nil {
				return t.start, err
			}
			defer leave()
		}
		if upTo, err = c.pieceEnd(ctx, t); err != nil {
			return nil, err
		}
		if t.follows || !bytes.Equal(upTo, t.end) {
			if !c.large {
				c.large = true
				return t.start, nil
			}
			if kept, err := c.keepPiece(ctx, t.start, upTo); kept || err != nil {
				return t.start, err
			}
		}
	}
	part := c.reader.at(c.rev)
	n, err := part.countTable(ctx, keysBetween(t.start, upTo))
	c.n += n
	c.table = true
	return upTo, err
}

// enter waits until the caller is the only one who counts pieces. leave is nil if the
// beginning of t was counted meanwhile.
func (c *pieceCount) enter(ctx context.Context, t *stretch) (leave func(), err error) {
	select {
	case c.pieces.fill <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	leave = func() { <-c.pieces.fill }
	if _, rest, ok := c.pieces.count(t.start, t.end, c.rev); !ok || rest == nil || rest.within || !bytes.Equal(rest.start, t.start) {
		leave()
		return nil, nil
	}
	return leave, nil
}

// pieceEnd returns where the piece ends that t begins with: its end, if it has no
// more rows than that.
func (c *pieceCount) pieceEnd(ctx context.Context, t *stretch) ([]byte, error) {
	lo, hi := indexBounds(t.start, t.end)
	row, err := c.store.Skip(ctx, lo, hi, c.pieces.size)
	if err != nil || row == nil {
		return t.end, err
	}
	return coder.DecodeIndexKey(row)
}

// keepPiece counts [start, end) for the map, at the frontier. It returns false if that
// cannot be done, because its keys change too fast.
func (c *pieceCount) keepPiece(ctx context.Context, start, end []byte) (kept bool, err error) {
	c.table = true
	lo, hi := indexBounds(start, end)
	for range countTries {
		at := max(c.frontier(), c.rev)
		n, newer, err := c.store.Count(ctx, lo, hi, at)
		if err != nil {
			return false, err
		}
		if newer > 0 {
			continue
		}
		// A key deleted behind at may be gone if compaction got there.
		if mark, err := c.mark(ctx); err != nil || at < mark {
			return false, err
		}
		c.pieces.add(start, end, n, at)
		return true, nil
	}
	return false, nil
}

// keysBetween are the keys of [start, end); end nil: every key from start on.
func keysBetween(start, end []byte) KeyRange {
	if end == nil {
		end = []byte{0}
	}
	return KeyRange{Key: start, End: end}
}
