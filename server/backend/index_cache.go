package backend

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/coder"
)

// indexEntry is what the cache knows of one key's index row. Exists false means
// that there is no such row.
type indexEntry struct {
	coder.Index
	exists bool
}

// live reports whether the key has a current value.
func (e indexEntry) live() bool { return e.exists && !e.Tombstone }

// of reports whether it is the index row that rec, a current record, has.
func (e indexEntry) of(rec *coder.Record) bool { return e.live() && e.ModRevision == rec.ModRevision }

// indexCache holds index rows of recently used keys, absent ones included. It is
// coherent because every change of an index row passes through commit; a fill
// from the database that raced with a commit is dropped, see indexLoad.
type indexCache struct {
	mu      sync.Mutex
	lru     *simplelru.LRU[string, indexEntry]
	loading map[string]*indexLoad
}

// indexLoad is a key that somebody reads from the database right now. A commit
// that changes the key marks it stale, so that the value read is not kept.
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

// knows reports whether key is cached, and does not count as a use of it.
func (c *indexCache) knows(key []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Contains(string(key))
}

func (c *indexCache) entries() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lru.Len()
}

// missing announces that the caller loads those of keys that are not cached, and
// returns them, each once. The caller must end every load with fill.
func (c *indexCache) missing(keys [][]byte) []*indexLoad {
	c.mu.Lock()
	defer c.mu.Unlock()
	var loads []*indexLoad
	seen := make(map[string]bool, len(keys))
	for _, k := range keys {
		if seen[string(k)] || c.lru.Contains(string(k)) {
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
		loads = append(loads, l)
	}
	return loads
}

// fill ends loads. entries are the rows read, index by index, or nil if reading
// failed.
func (c *indexCache) fill(loads []*indexLoad, entries []indexEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, l := range loads {
		l.readers--
		if l.readers == 0 && !l.stale {
			delete(c.loading, l.key)
		}
		if entries != nil && !l.stale && !c.lru.Contains(l.key) {
			c.lru.Add(l.key, entries[i])
		}
	}
}

// set records what a commit wrote.
func (c *indexCache) set(key string, e indexEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.markStale(key)
	c.lru.Add(key, e)
}

// update is set for many keys, but does not begin to cache those that are not.
func (c *indexCache) update(keys map[string]*keyState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, ks := range keys {
		if len(c.loading) > 0 {
			c.markStale(key)
		}
		if c.lru.Contains(key) {
			c.lru.Add(key, ks.entry())
		}
	}
}

// purge forgets everything, loads under way included.
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
