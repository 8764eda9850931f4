package backend

import (
	"container/list"
	"sync"

	"github.com/sqlbrain/sqlbrain/coder"
)

// recordCache holds current records of recently used keys within a budget of
// bytes, those that the rangeCache has excepted. It serves gets, previous values
// and value compares without the database. As with indexCache, every change passes
// through set, and a fill that raced with a change is dropped.
type recordCache struct {
	mu      sync.Mutex
	budget  int
	used    int
	entries map[string]*list.Element // of *coder.Record
	recent  *list.List
	loading map[string]*recordLoad
}

type recordLoad struct {
	readers int
	stale   bool
}

// recordOverhead is about what an entry costs besides its key and value.
const recordOverhead = 250

func newRecordCache(budget int) *recordCache {
	return &recordCache{
		budget: budget, entries: make(map[string]*list.Element), recent: list.New(),
		loading: make(map[string]*recordLoad),
	}
}

// get returns the newest committed record of key. At any revision up to the
// frontier, read before the call, that is also what a reader sees, unless the
// record's ModRevision is above it.
func (c *recordCache) get(key []byte) (*coder.Record, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[string(key)]
	if e == nil {
		return nil, false
	}
	c.recent.MoveToFront(e)
	return e.Value.(*coder.Record), true
}

// load announces that the caller reads key's current record from the database.
// It ends with the returned function, given the record, or nil for none to keep.
func (c *recordCache) load(key []byte) func(*coder.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.loading[string(key)]
	if l == nil {
		l = &recordLoad{}
		c.loading[string(key)] = l
	}
	l.readers++
	return func(r *coder.Record) {
		c.mu.Lock()
		defer c.mu.Unlock()
		l.readers--
		if l.stale {
			return
		}
		if l.readers == 0 {
			delete(c.loading, string(key))
		}
		if r != nil && c.entries[string(key)] == nil {
			c.put(r)
		}
	}
}

// set records a change: r is the key's new record, which may be a tombstone. It is
// kept here if the caller does not have it elsewhere.
func (c *recordCache) set(r *coder.Record, keep bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.loading[string(r.Key)]; l != nil {
		l.stale = true
		delete(c.loading, string(r.Key))
	}
	c.remove(c.entries[string(r.Key)])
	if keep && !r.Tombstone {
		c.put(r)
	}
}

func (c *recordCache) put(r *coder.Record) {
	size := recordSize(r)
	if size > c.budget/8 {
		return // one giant must not empty the cache
	}
	c.entries[string(r.Key)] = c.recent.PushFront(r)
	c.used += size
	c.shrink()
}

// resize changes the budget.
func (c *recordCache) resize(budget int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.budget = budget
	c.shrink()
}

func (c *recordCache) shrink() {
	for c.used > c.budget && c.recent.Len() > 0 {
		c.remove(c.recent.Back())
	}
}

func (c *recordCache) remove(e *list.Element) {
	if e == nil {
		return
	}
	r := c.recent.Remove(e).(*coder.Record)
	delete(c.entries, string(r.Key))
	c.used -= recordSize(r)
}

// purge forgets everything, loads under way included.
func (c *recordCache) purge() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, l := range c.loading {
		l.stale = true
		delete(c.loading, key)
	}
	c.entries, c.recent, c.used = make(map[string]*list.Element), list.New(), 0
}

// bytes returns the bytes in use.
func (c *recordCache) bytes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

func recordSize(r *coder.Record) int { return len(r.Key) + len(r.Value) + recordOverhead }
