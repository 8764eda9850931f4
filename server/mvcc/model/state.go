// Package model is etcd's key space, kept the plain way: every version of every key. It executes requests on the
// state at any revision, and says what etcd answers. Unit tests, the fuzzer of requests and the histories of
// integration compare the server with it. Only tests import it, and it imports nothing of the server, which it judges.
//
// Start reading at State; Execute is in execute.go.
package model

import (
	"fmt"
	"maps"
	"slices"
	"sort"

	"go.etcd.io/etcd/api/v3/mvccpb"
)

// KV is one version of a key.
type KV struct {
	Key, Value                  string
	CreateRevision, ModRevision int64
	Version, Lease              int64
}

// String shortens the value, which is mostly padding.
func (kv KV) String() string {
	value := kv.Value
	if len(value) > 12 {
		value = fmt.Sprintf("%s… (%d bytes)", value[:12], len(value))
	}
	return fmt.Sprintf("{%q=%q create %d mod %d version %d lease %x}", kv.Key, value, kv.CreateRevision, kv.ModRevision,
		kv.Version, kv.Lease)
}

// FromProto converts a version that a client received.
func FromProto(kv *mvccpb.KeyValue) KV {
	return KV{
		Key: string(kv.Key), Value: string(kv.Value), Lease: kv.Lease,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version,
	}
}

// Proto converts kv to etcd's message.
func (kv KV) Proto() *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: []byte(kv.Key), Value: []byte(kv.Value), Lease: kv.Lease,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version,
	}
}

// Range names keys as etcd does: an empty End is the single key.
type Range struct{ Key, End string }

// Contains reports whether the range covers key.
func (r Range) Contains(key string) bool {
	switch r.End {
	case "":
		return key == r.Key
	case "\x00":
		return key >= r.Key
	default:
		return key >= r.Key && key < r.End
	}
}

// Event is one change of one key.
type Event struct {
	KV      // of a delete: key and mod revision only
	Deleted bool
	Prev    *KV // nil if the key was absent
}

func (e Event) String() string {
	kind := "put"
	if e.Deleted {
		kind = "delete"
	}
	return fmt.Sprintf("%s %v previous %v", kind, e.KV, e.Prev)
}

// Revision is one revision with its events, in order.
type Revision struct {
	Number int64
	Events []Event
}

// State is the key space at every revision since its base. It is not safe for concurrent use.
type State struct {
	// Compacted is the compact revision, at the start -1: requests that read below it are refused.
	Compacted int64
	// LeaseExists reports whether a put may attach a lease; nil: any.
	LeaseExists func(id int64) bool

	base, revision int64
	versions       map[string][]version
	keys           []string // sorted, all there ever were
	attached       map[int64]map[string]bool
	changes        map[int64][]Event // by revision
}

type version struct {
	KV
	deleted bool
}

// New returns the state of a store without keys at revision base, 1 for a fresh etcd.
func New(base int64) *State {
	return &State{
		Compacted: -1, base: base, revision: base, versions: make(map[string][]version),
		attached: make(map[int64]map[string]bool), changes: make(map[int64][]Event),
	}
}

// Base is the oldest revision whose state is known.
func (s *State) Base() int64 { return s.base }

// Revision is the newest revision.
func (s *State) Revision() int64 { return s.revision }

// Get returns key at revision rev, and whether it is present.
func (s *State) Get(key string, rev int64) (KV, bool) {
	vs := s.versions[key]
	i := sort.Search(len(vs), func(i int) bool { return vs[i].ModRevision > rev })
	if i == 0 || vs[i-1].deleted {
		return KV{}, false
	}
	return vs[i-1].KV, true
}

// List returns the keys of r present at revision rev, in order.
func (s *State) List(r Range, rev int64) []KV {
	i, _ := slices.BinarySearch(s.keys, r.Key)
	var kvs []KV
	for ; i < len(s.keys) && r.Contains(s.keys[i]); i++ {
		if kv, ok := s.Get(s.keys[i], rev); ok {
			kvs = append(kvs, kv)
		}
	}
	return kvs
}

// Attached returns the keys of a lease at the newest revision, in order.
func (s *State) Attached(lease int64) []string { return slices.Sorted(maps.Keys(s.attached[lease])) }

// Events returns those of revision rev that a watch of r sees, with the previous versions.
func (s *State) Events(r Range, rev int64) []Event {
	var events []Event
	for _, e := range s.changes[rev] {
		if r.Contains(e.Key) {
			events = append(events, e)
		}
	}
	return events
}

// Apply adds a revision.
func (s *State) Apply(r Revision) {
	for _, e := range r.Events {
		vs, known := s.versions[e.Key]
		if !known {
			i, _ := slices.BinarySearch(s.keys, e.Key)
			s.keys = slices.Insert(s.keys, i, e.Key)
		}
		if len(vs) > 0 {
			s.detach(vs[len(vs)-1].Lease, e.Key)
		}
		s.versions[e.Key] = append(vs, version{KV: e.KV, deleted: e.Deleted})
		if e.Lease != 0 {
			if s.attached[e.Lease] == nil {
				s.attached[e.Lease] = make(map[string]bool)
			}
			s.attached[e.Lease][e.Key] = true
		}
	}
	s.changes[r.Number] = r.Events
	s.revision = r.Number
}

func (s *State) detach(lease int64, key string) {
	delete(s.attached[lease], key)
	if len(s.attached[lease]) == 0 {
		delete(s.attached, lease)
	}
}
