package history

import (
	"context"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
)

const (
	// cacheBytes bounds the pages in a pageCache, and pageBytes a page that has more than one commit.
	cacheBytes = 4 << 20
	pageBytes  = cacheBytes / 4
	// pageOverhead and rowOverhead are about the memory of a page, and of a log row in it, in bytes, and changeBytes
	// is that of a change without its key.
	pageOverhead, rowOverhead, changeBytes = 256, 48, 64
)

// page is a part of the log: the rows that have the changes of revisions in [from, next). They may have others too.
type page struct {
	from, next int64
	rows       [][]coder.Change
	bytes      int
}

// pageCache has the pages of the log that were used last, for watchers that read the same history. A page can begin at
// any revision: the next one begins where it ends, so that all its readers continue in the same place. Log rows do not
// change. Compaction removes them, and readers check for it. A nil cache is empty. Safe for concurrent use.
type pageCache struct {
	mu      sync.Mutex
	pages   []*page // in order of use
	bytes   int
	reading map[int64]chan struct{} // by where the page begins; closed when it was read
}

// find returns the page that has revision from and most after it, and waits if another caller reads one that begins
// there. If there is none, the caller must read it, and call done. The error is ctx's.
func (c *pageCache) find(ctx context.Context, from int64) (*page, error) {
	if c == nil {
		return nil, nil
	}
	for {
		c.mu.Lock()
		best := -1
		for i, p := range c.pages {
			if p.from <= from && from < p.next && (best < 0 || p.next > c.pages[best].next) {
				best = i
			}
		}
		if best >= 0 {
			p := c.pages[best]
			copy(c.pages[best:], c.pages[best+1:])
			c.pages[len(c.pages)-1] = p
			c.mu.Unlock()
			return p, nil
		}
		read := c.reading[from]
		if read == nil {
			c.reading[from] = make(chan struct{})
			c.mu.Unlock()
			return nil, nil
		}
		c.mu.Unlock()
		select {
		case <-read:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// done ends a read that find has left to the caller. It adds p, unless p is too large or the read failed.
func (c *pageCache) done(p *page, err error) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.reading[p.from])
	delete(c.reading, p.from)
	if err != nil || p.bytes > cacheBytes {
		return
	}
	c.pages = append(c.pages, p)
	for c.bytes += p.bytes; c.bytes > cacheBytes; {
		c.bytes -= c.pages[0].bytes
		c.pages[0] = nil
		c.pages = c.pages[1:]
	}
}

// add adds a row of that size to p. Rows are not kept beyond the size of the cache.
func (p *page) add(row []coder.Change, size int) {
	p.bytes += rowOverhead + size + changeBytes*cap(row)
	if p.rows = append(p.rows, row); p.bytes > cacheBytes {
		p.rows = nil
	}
}
