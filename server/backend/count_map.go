package backend

import (
	"bytes"
	"cmp"
	"slices"
	"sync"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/watch"
)

// countMap knows how many keys there are in pieces of the key space, so that a
// count costs what its ends take to count and not what lies between them. Pieces
// are disjoint, hold about as many keys each, and come from counts of the table.
// Every change passes through note, in order and before the frontier moves, so
// pieces are always about the newest revision noted; the last changes are kept to
// tell what they were at revisions before it.
type countMap struct {
	size int           // keys of a piece when it is counted
	kept int           // changes kept at least; at most it is twice as many
	fill chan struct{} // holds a token while a piece is counted: everybody would count the same

	mu      sync.Mutex
	pieces  *btree.BTreeG[*countPiece] // by start
	changes []countChange              // creations and deletions, the newest last
	low     int64                      // the oldest revision that they reach back to
}

// countPiece says how many keys [start, end) has.
type countPiece struct {
	start, end []byte // end nil: every key from start on
	n          int64
}

// countChange says that a key came into being (net 1) or was deleted (-1).
type countChange struct {
	rev int64
	key []byte
	net int64
}

const (
	// countPieceKeys is some half a millisecond of counting.
	countPieceKeys = 2048
	// maxCountPiece is how many times its size a piece grows until it is given up,
	// to be counted anew in several.
	maxCountPiece = 4
	// countChangesKept take some hundred bytes each.
	countChangesKept = 4096
)

// newCountMap returns a map without pieces, at revision rev.
func newCountMap(size, kept int, rev int64) *countMap {
	return &countMap{size: size, kept: kept, fill: make(chan struct{}, 1), pieces: newPieceTree(), low: rev}
}

func newPieceTree() *btree.BTreeG[*countPiece] {
	return btree.NewG(16, func(a, b *countPiece) bool { return bytes.Compare(a.start, b.start) < 0 })
}

// purge forgets everything before revision rev, at which it goes on.
func (c *countMap) purge(rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pieces, c.changes, c.low = newPieceTree(), nil, rev
}

func (c *countMap) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pieces.Len()
}

// reaches reports whether what is known can be told for revision rev.
func (c *countMap) reaches(rev int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return rev >= c.low
}

// note takes in a change.
func (c *countMap) note(e *watch.Event) {
	change := countChange{rev: e.Record.ModRevision, key: e.Record.Key}
	switch {
	case e.Type == watch.Delete:
		change.net = -1
	case e.PrevRevision == 0:
		change.net = 1
	default:
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.changes) >= 2*c.kept {
		gone := len(c.changes) - c.kept
		c.low = c.changes[gone-1].rev
		c.changes = append(make([]countChange, 0, 2*c.kept), c.changes[gone:]...)
	}
	c.changes = append(c.changes, change)
	p := c.floor(change.key)
	if p == nil || !before(change.key, p.end) {
		return
	}
	switch p.n += change.net; {
	case p.n > int64(maxCountPiece*c.size):
		c.pieces.Delete(p)
	case change.net < 0 && p.n < int64(c.size/maxCountPiece):
		c.join(p)
	}
}

// floor returns the last piece that does not start behind key.
func (c *countMap) floor(key []byte) (found *countPiece) {
	c.pieces.DescendLessOrEqual(&countPiece{start: key}, func(p *countPiece) bool {
		found = p
		return false
	})
	return found
}

// ending returns the piece that ends at key, nil if there is none.
func (c *countMap) ending(key []byte) (found *countPiece) {
	c.pieces.DescendLessOrEqual(&countPiece{start: key}, func(p *countPiece) bool {
		if bytes.Equal(p.start, key) {
			return true
		}
		if p.end != nil && bytes.Equal(p.end, key) {
			found = p
		}
		return false
	})
	return found
}

// starting returns the piece that starts at key, nil if there is none, as behind
// every key.
func (c *countMap) starting(key []byte) *countPiece {
	if key == nil {
		return nil
	}
	p, _ := c.pieces.Get(&countPiece{start: key})
	return p
}

// join makes p one with its neighbours if it would not be too large: else pieces
// that all keys are deleted from would add up.
func (c *countMap) join(p *countPiece) {
	most := int64(2 * c.size)
	if prev := c.ending(p.start); prev != nil && prev.n+p.n <= most {
		prev.n += p.n
		prev.end = p.end
		c.pieces.Delete(p)
		p = prev
	}
	if next := c.starting(p.end); next != nil && next.n+p.n <= most {
		p.n += next.n
		p.end = next.end
		c.pieces.Delete(next)
	}
}

// since returns by how many keys [start, end) grew behind revision rev.
func (c *countMap) since(rev int64, start, end []byte) (net int64) {
	first, _ := slices.BinarySearchFunc(c.changes, rev+1, func(ch countChange, rev int64) int { return cmp.Compare(ch.rev, rev) })
	for _, ch := range c.changes[first:] {
		if bytes.Compare(ch.key, start) >= 0 && (end == nil || bytes.Compare(ch.key, end) < 0) {
			net += ch.net
		}
	}
	return net
}

// stretch are keys that no whole piece counts.
type stretch struct {
	start, end []byte // nil as everywhere
	// within says that they are a part of a piece.
	within bool
	// follows says that a piece ends where they start.
	follows bool
}

// count returns how many keys there are at revision rev from from on, up to the
// first that is in no piece, or in one that does not lie before end as a whole. rest
// is what begins there, nil if that is end. ok is false if rev is too old.
func (c *countMap) count(from, end []byte, rev int64) (n int64, rest *stretch, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rev < c.low {
		return 0, nil, false
	}
	if p := c.floor(from); p != nil && !bytes.Equal(p.start, from) && before(from, p.end) {
		return 0, &stretch{start: from, end: nearer(p.end, end), within: true}, true
	}
	next, done := from, false
	var stop *countPiece
	c.pieces.AscendGreaterOrEqual(&countPiece{start: from}, func(p *countPiece) bool {
		if !bytes.Equal(p.start, next) || before(end, p.end) {
			stop = p
			return false
		}
		n += p.n
		next = p.end
		done = !before(next, end)
		return !done
	})
	upTo := next
	if !done {
		rest = &stretch{start: next, end: end, follows: c.ending(next) != nil}
		switch {
		case stop == nil:
		case bytes.Equal(stop.start, next):
			rest.within = true
		case before(stop.start, end):
			rest.end = stop.start
		}
	}
	return n - c.since(rev, from, upTo), rest, true
}

func nearer(a, b []byte) []byte {
	if before(a, b) {
		return a
	}
	return b
}

// add takes in that [start, end) had n keys at revision rev, unless that is too old
// or some of it is known.
func (c *countMap) add(start, end []byte, n, rev int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if rev < c.low {
		return
	}
	if p := c.floor(start); p != nil && before(start, p.end) {
		return
	}
	known := false
	c.pieces.AscendGreaterOrEqual(&countPiece{start: start}, func(p *countPiece) bool {
		known = before(p.start, end)
		return false
	})
	if known {
		return
	}
	p := &countPiece{start: bytes.Clone(start), end: bytes.Clone(end), n: n + c.since(rev, start, end)}
	c.pieces.ReplaceOrInsert(p)
	if p.n < int64(c.size/2) {
		c.join(p)
	}
}
