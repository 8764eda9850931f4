package write

import (
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
)

const (
	// decisionsKept is how many decisions are cached in addition to those that requests wait
	// with.
	decisionsKept = 512
	// UncheckedKeys is how many keys are recorded for each decision. With more it is void.
	UncheckedKeys = 1024
)

// decisions caches for users whether they may write all keys of a lease. Safe for concurrent
// use.
type decisions struct {
	mu       sync.Mutex
	known    *simplelru.LRU[decisionKey, *decision]
	of       map[int64]map[*decision]struct{} // by lease
	reserved int                              // see reserve
}

type decisionKey struct {
	lease int64
	user  string
}

// decision is valid for one version of users and roles. The mutex of decisions guards unchecked and
// void. The other fields are written before decided is closed.
type decision struct {
	decisionKey
	version   int64
	decided   chan struct{}
	err       error  // why it could not be made; the decision is forgotten then
	left      bool   // because the caller that was to make it had left
	refused   []byte // a key that the user may not write; nil: there is none
	unchecked map[string]struct{}
	void      bool // too many keys were attached since
}

func newDecisions() (*decisions, error) {
	ds := &decisions{of: make(map[int64]map[*decision]struct{})}
	var err error
	ds.known, err = simplelru.NewLRU(decisionsKept, func(_ decisionKey, d *decision) {
		delete(ds.of[d.lease], d)
		if len(ds.of[d.lease]) == 0 {
			delete(ds.of, d.lease)
		}
	})
	return ds, err
}

// reserve keeps n more decisions, which a request is going to need, or fewer if n is negative. Without that,
// more than decisionsKept requests would evict each other's decisions, and none would be executed.
func (ds *decisions) reserve(n int) {
	if n == 0 {
		return
	}
	ds.mu.Lock()
	defer ds.mu.Unlock()
	ds.reserved += n
	ds.known.Resize(decisionsKept + ds.reserved)
}

// valid reports whether d is valid for a version of users and roles. The caller must hold the
// mutex.
func (d *decision) valid(version int64) bool { return d != nil && d.version == version && !d.void }

// findOrAdd returns the decision for a version of users and roles. With added, the caller must make it, and close
// decided.
func (ds *decisions) findOrAdd(key decisionKey, version int64) (d *decision, added bool) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if d, _ = ds.known.Get(key); d.valid(version) {
		return d, false
	}
	d = &decision{decisionKey: key, version: version, decided: make(chan struct{}), unchecked: make(map[string]struct{})}
	ds.known.Remove(key)
	ds.known.Add(key, d)
	if ds.of[key.lease] == nil {
		ds.of[key.lease] = make(map[*decision]struct{})
	}
	ds.of[key.lease][d] = struct{}{}
	return d, true
}

// find returns a decision that was made, and the keys attached since, which the caller must
// check; nil if there is none.
func (ds *decisions) find(key decisionKey, version int64) (*decision, [][]byte) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	d, _ := ds.known.Get(key)
	if !d.valid(version) {
		return nil, nil
	}
	select {
	case <-d.decided:
	default:
		return nil, nil
	}
	unchecked := make([][]byte, 0, len(d.unchecked))
	for k := range d.unchecked {
		unchecked = append(unchecked, []byte(k))
	}
	return d, unchecked
}

// markChecked forgets attached keys that the user may write.
func (ds *decisions) markChecked(d *decision, keys [][]byte) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	for _, k := range keys {
		delete(d.unchecked, string(k))
	}
}

func (ds *decisions) forget(d *decision) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if cur, ok := ds.known.Peek(d.decisionKey); ok && cur == d {
		ds.known.Remove(d.decisionKey)
	}
}

// recordAttached records which keys a commit attached to leases.
func (ds *decisions) recordAttached(changes []txn.Change) {
	ds.mu.Lock()
	defer ds.mu.Unlock()
	if len(ds.of) == 0 {
		return
	}
	for i := range changes {
		rec := changes[i].Record
		for d := range ds.of[rec.Lease] {
			if d.unchecked[string(rec.Key)] = struct{}{}; len(d.unchecked) > UncheckedKeys {
				d.void, d.unchecked = true, make(map[string]struct{})
			}
		}
	}
}
