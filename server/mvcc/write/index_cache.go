package write

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/coder"
)

// indexEntry is a key's index row. If exists is false, the key has none.
type indexEntry struct {
	coder.Index
	exists    bool
	encoded   *encodedRow // nil: by the commit that replaces it
	malformed error       // why the row cannot be decoded, so that only commands that need it fail; never cached
}

// encodedRow is an index row as the table has it.
type encodedRow struct{ key, value []byte }

// live reports whether the key has a current value.
func (e indexEntry) live() bool { return e.exists && !e.Tombstone }

// of reports whether it is the index row of rec, a current record.
func (e indexEntry) of(rec *coder.Record) bool { return e.live() && e.ModRevision == rec.ModRevision }

// indexCache has the index rows of recently used keys, including keys that have none. It is
// coherent because every change of an index row passes through commit. An entry that was read
// from the database while a commit changed its row is dropped, see indexLoad. Safe for
// concurrent use.
type indexCache struct {
	mu      sync.Mutex
	lru     *simplelru.LRU[string, indexEntry]
	loading map[string]*indexLoad
}

// indexLoad is a key whose index row is being read from the database. A commit that changes
// the key marks it stale, so that the row that was read is not cached.
type indexLoad struct {
	key     string
	readers int
	stale   bool
}

func newIndexCache(entries int) (*indexCache, error) {
	lru, err := simplelru.NewLRU[string, indexEntry](entries, nil)
	if err != nil {
		return nil, err
	}
	return &indexCache{lru: lru, loading: make(map[string]*indexLoad)}, nil
}

func (c *indexCache) get(key string) (indexEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Get(key)
}

// peek is get, and does not count as a use.
func (c *indexCache) peek(key []byte) (indexEntry, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Peek(string(key))
}

func (c *indexCache) entries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Len()
}

// missing returns those of keys that are not cached, and a load for each. The caller must read them and end every load
// with fill.
func (c *indexCache) missing(keys [][]byte) (loads []*indexLoad, uncached [][]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	seen := map[string]bool{}
	for _, k := range keys {
		if c.lru.Contains(string(k)) || seen[string(k)] {
			continue
		}
		s := string(k)
		seen[s] = true
		l := c.loading[s]
		if l == nil {
			l = &indexLoad{key: s}
			c.loading[s] = l
		}
		l.readers++
		loads, uncached = append(loads, l), append(uncached, k)
	}
	return loads, uncached
}

// fill ends loads. entries are the rows, in the order of loads, or nil if reading failed.
func (c *indexCache) fill(loads []*indexLoad, entries []indexEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range loads {
		l.readers--
		if l.readers == 0 && !l.stale {
			delete(c.loading, l.key)
		}
		if entries != nil && entries[i].malformed == nil && !l.stale && !c.lru.Contains(l.key) {
			c.lru.Add(l.key, entries[i])
		}
	}
}

// update caches what a commit wrote. Keys of a large commit that are not cached yet must not evict those in use.
func (c *indexCache) update(b *batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for changed := range b.changed.All() {
		key := string(changed.Record.Key)
		c.markStale(key)
		if b.changed.Len() <= exclusiveBatchKeys || c.lru.Contains(key) {
			c.lru.Add(key, b.entry(changed))
		}
	}
}

// removed records that compaction has removed the index rows of tombstones. Their keys have none now, unless they were
// written again.
func (c *indexCache) removed(tombstones []coder.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range tombstones {
		key := string(t.Key)
		c.markStale(key)
		if e, ok := c.lru.Peek(key); ok && e.Tombstone && e.ModRevision == t.Revision {
			c.lru.Add(key, indexEntry{})
		}
	}
}

// purge empties the cache, and marks all loads stale.
func (c *indexCache) purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.loading {
		c.markStale(key)
	}
	c.lru.Purge()
}

func (c *indexCache) markStale(key string) {
	if l := c.loading[key]; l != nil {
		l.stale = true
		delete(c.loading, key)
	}
}
