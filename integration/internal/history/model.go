package history

import (
	"slices"
	"sort"
)

// model is the state of a store at every revision, replayed from events.
type model struct {
	base     int64 // revisions below it are not known
	revision int64
	versions map[string][]version
	keys     []string // sorted, all there ever were
	attached map[int64]map[string]bool
	changes  map[int64][]Event // by revision
}

type version struct {
	KV
	deleted bool
}

func newModel(base int64) *model {
	return &model{
		base: base, revision: base, versions: make(map[string][]version),
		attached: make(map[int64]map[string]bool), changes: make(map[int64][]Event),
	}
}

// get returns key at revision rev, and whether it is present.
func (m *model) get(key string, rev int64) (KV, bool) {
	vs := m.versions[key]
	i := sort.Search(len(vs), func(i int) bool { return vs[i].ModRevision > rev })
	if i == 0 || vs[i-1].deleted {
		return KV{}, false
	}
	return vs[i-1].KV, true
}

// scan returns the keys of r present at revision rev, in order.
func (m *model) scan(r Range, rev int64) []KV {
	i, _ := slices.BinarySearch(m.keys, r.Key)
	var kvs []KV
	for ; i < len(m.keys) && r.Contains(m.keys[i]); i++ {
		if kv, ok := m.get(m.keys[i], rev); ok {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

// holds reports whether every key has the mod revision named, 0 being absence,
// at revision rev.
func (m *model) holds(compare map[string]int64, rev int64) bool {
	for key, mod := range compare {
		kv, _ := m.get(key, rev)
		if kv.ModRevision != mod {
			return false
		}
	}
	return true
}

// effects returns the events that op has if it takes effect at the revision
// after rev, which is the newest one the model knows when op revokes a lease.
func (m *model) effects(op *Op, rev int64) []Event {
	if op.Request != nil {
		x := m.execute(op.Request, rev)
		if x.err != nil {
			return nil // it is refused as a whole
		}
		return x.events
	}
	next := rev + 1
	var events []Event
	for _, p := range op.Puts {
		kv := KV{Key: p.Key, Value: p.Value, Lease: p.Lease, CreateRevision: next, ModRevision: next, Version: 1}
		e := Event{}
		if prev, ok := m.get(p.Key, rev); ok {
			kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
			e.Prev = &prev
		}
		e.KV = kv
		events = append(events, e)
	}
	var gone []KV
	for _, d := range op.Deletes {
		gone = append(gone, m.scan(d, rev)...)
	}
	if op.Revoke != 0 {
		for key := range m.attached[op.Revoke] {
			kv, _ := m.get(key, rev)
			gone = append(gone, kv)
		}
		slices.SortFunc(gone, func(a, b KV) int {
			if a.Key < b.Key {
				return -1
			}
			return 1
		})
	}
	for _, prev := range gone {
		events = append(events, Event{KV: KV{Key: prev.Key, ModRevision: next}, Deleted: true, Prev: &prev})
	}
	return events
}

// apply adds a revision.
func (m *model) apply(r Revision) {
	for _, e := range r.Events {
		vs, known := m.versions[e.Key]
		if !known {
			i, _ := slices.BinarySearch(m.keys, e.Key)
			m.keys = slices.Insert(m.keys, i, e.Key)
		}
		if len(vs) > 0 {
			m.detach(vs[len(vs)-1].Lease, e.Key)
		}
		m.versions[e.Key] = append(vs, version{KV: e.KV, deleted: e.Deleted})
		if e.Lease != 0 {
			if m.attached[e.Lease] == nil {
				m.attached[e.Lease] = make(map[string]bool)
			}
			m.attached[e.Lease][e.Key] = true
		}
	}
	m.changes[r.Number] = r.Events
	m.revision = r.Number
}

// events returns those of revision rev that a watch of r sees.
func (m *model) events(r Range, rev int64, prevKV bool) []Event {
	var events []Event
	for _, e := range m.changes[rev] {
		if !r.Contains(e.Key) {
			continue
		}
		if !prevKV {
			e.Prev = nil
		}
		events = append(events, e)
	}
	return events
}

func (m *model) detach(lease int64, key string) {
	delete(m.attached[lease], key)
	if len(m.attached[lease]) == 0 {
		delete(m.attached, lease)
	}
}
