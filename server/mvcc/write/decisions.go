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
	reserved int // see reserve
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
	known, err := simplelru.NewLRU[decisionKey, *decision](decisionsKept, nil)
	return &decisions{known: known}, err
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
	ds.known.Add(key, d)
	return d, true
}

// find returns a decision that was made, and the keys that the caller must check: the one that was refused, and those
// attached since. It returns nil if there is none.
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
	unchecked := make([][]byte, 0, len(d.unchecked)+1)
	if d.refused != nil {
		unchecked = append(unchecked, d.refused)
	}
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
	if ds.known.Len() == 0 {
		return
	}
	attached := make(map[int64][]string)
	for i := range changes {
		if rec := changes[i].Record; rec.Lease != 0 {
			attached[rec.Lease] = append(attached[rec.Lease], string(rec.Key))
		}
	}
	if len(attached) == 0 {
		return
	}
	for _, d := range ds.known.Values() {
		for _, key := range attached[d.lease] {
			if d.unchecked[key] = struct{}{}; len(d.unchecked) > UncheckedKeys {
				d.void, d.unchecked = true, make(map[string]struct{})
			}
		}
	}
}
