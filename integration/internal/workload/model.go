package workload

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// state is the content of a key in an answer, with a hash in place of the value.
type state struct {
	create, mod, version, lease int64
	hash                        uint64
	size                        int
}

func (s state) String() string {
	return fmt.Sprintf("{create %d mod %d version %d lease %x, %d bytes %016x}", s.create, s.mod, s.version, s.lease,
		s.size, s.hash)
}

func hashOf(value []byte) uint64 { return xxhash.Sum64(value) }

// stateOf returns the state of kv in an answer.
func (m *model) stateOf(kv *mvccpb.KeyValue) state {
	s := state{
		create: kv.CreateRevision, mod: kv.ModRevision, version: kv.Version, lease: kv.Lease,
		hash: hashOf(kv.Value), size: len(kv.Value),
	}
	if m.noVersions {
		s.version = 0
	}
	return s
}

// version is one entry of an object's history. Of a deletion only mod counts.
type version struct {
	state
	deleted bool
}

// object is the model of one key. Only the worker that claimed it may write it; mu
// guards the rest.
type object struct {
	index int
	kind  int
	key   string

	mu       sync.Mutex
	claimed  bool
	lost     bool      // its state is unknown: a write could not be settled
	history  []version // by revision
	sendings []int64   // when each of its values was sent first, in nanoseconds
}

// claim takes the right to write o, if no other worker has it.
func (o *object) claim() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.claimed || o.lost {
		return false
	}
	o.claimed = true
	return true
}

func (o *object) release() {
	o.mu.Lock()
	o.claimed = false
	o.mu.Unlock()
}

func (o *object) lose() {
	o.mu.Lock()
	o.lost = true
	o.mu.Unlock()
}

// latest returns the newest state; false if the object does not exist.
func (o *object) latest() (state, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.atLocked(math.MaxInt64)
}

func (o *object) atLocked(rev int64) (state, bool) {
	i, found := slices.BinarySearchFunc(o.history, rev, func(v version, r int64) int { return cmp.Compare(v.mod, r) })
	if found {
		i++
	}
	if i == 0 || o.history[i-1].deleted {
		return state{}, false
	}
	return o.history[i-1].state, true
}

// settled returns the state at rev. It is final only if known is true: no write
// is under way and none got lost.
func (o *object) settled(rev int64) (s state, live, known, lost bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s, live = o.atLocked(rev)
	return s, live, !o.claimed && !o.lost, o.lost
}

// model is what the store must hold. Safe for concurrent use.
type model struct {
	gen *generator
	// noVersions: the server does not count versions, so all are 0 here.
	noVersions bool
	revision   atomic.Int64 // newest revision that any answer named

	mu      sync.RWMutex
	objects []*object // by index
	keys    map[string]*object
}

func newModel(gen *generator, noVersions bool) *model {
	return &model{gen: gen, noVersions: noVersions, keys: map[string]*object{}}
}

// add makes the next object, which does not exist in the store yet; kind < 0
// lets the generator choose.
func (m *model) add(kind int) *object {
	m.mu.Lock()
	defer m.mu.Unlock()
	i := len(m.objects)
	if kind < 0 {
		kind = m.gen.kindOf(i)
	}
	o := &object{index: i, kind: kind, key: m.gen.key(i, kind)}
	m.objects = append(m.objects, o)
	m.keys[o.key] = o
	return o
}

func (m *model) find(key []byte) *object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.keys[string(key)]
}

func (m *model) len() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.objects)
}

func (m *model) object(i int) *object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.objects[i]
}

// sorted returns all objects below prefix in key order.
func (m *model) sorted(prefix string) []*object {
	m.mu.RLock()
	defer m.mu.RUnlock()
	var all []*object
	for _, o := range m.objects {
		if strings.HasPrefix(o.key, prefix) {
			all = append(all, o)
		}
	}
	slices.SortFunc(all, compareKeys)
	return all
}

func compareKeys(a, b *object) int { return cmp.Compare(a.key, b.key) }

// commit records a write that took effect.
func (m *model) commit(o *object, v version) {
	o.mu.Lock()
	o.history = append(o.history, v)
	o.mu.Unlock()
	m.see(v.mod)
}

// see records a revision that an answer named.
func (m *model) see(rev int64) {
	for old := m.revision.Load(); rev > old; old = m.revision.Load() {
		if m.revision.CompareAndSwap(old, rev) {
			return
		}
	}
}

// event is one change as a watch must report it. Of a deletion, now holds the
// revision only.
type event struct {
	object  *object
	deleted bool
	now     state
	hasPrev bool
	prev    state
}

// eventsOf returns the changes with revisions in (from, to] of objects, which are in key order,
// in the order a watch must deliver them.
func eventsOf(objects []*object, from, to int64) []event {
	var all []event
	for _, o := range objects {
		o.mu.Lock()
		for i, v := range o.history {
			if v.mod <= from || v.mod > to {
				continue
			}
			e := event{object: o, deleted: v.deleted, now: v.state}
			if i > 0 && !o.history[i-1].deleted {
				e.hasPrev, e.prev = true, o.history[i-1].state
			}
			all = append(all, e)
		}
		o.mu.Unlock()
	}
	// Keys ascend within a revision: only transactions of load change several.
	slices.SortStableFunc(all, func(a, b event) int { return cmp.Compare(a.now.mod, b.now.mod) })
	return all
}

// revisions returns the distinct revisions of all writes, ascending, and
// whether the state of any object is unknown.
func (m *model) revisions() (revs []int64, lost int) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	for _, o := range m.objects {
		o.mu.Lock()
		if o.lost {
			lost++
		}
		for _, v := range o.history {
			revs = append(revs, v.mod)
		}
		o.mu.Unlock()
	}
	slices.Sort(revs)
	return revs, lost
}
