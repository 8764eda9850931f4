package watch

import (
	"go.etcd.io/etcd/pkg/v3/adt"

	"github.com/sqlbrain/sqlbrain/coder"
)

// index finds the watchers that an event's key concerns: those of the exact key
// in a map, those of a range in an interval tree, so that an event costs what it
// matches and not what is watched. It is guarded by the hub's lock.
type index struct {
	keys   map[string]*watcherSet
	ranges adt.IntervalTree // values are *watcherSet
}

// watcherSet is the watchers of one key or one range. A watcher is in at most one.
type watcherSet struct{ all []*watcher }

func newIndex() index {
	return index{keys: make(map[string]*watcherSet), ranges: adt.NewIntervalTree()}
}

func interval(w *watcher) adt.Interval {
	if coder.IsFromKey(w.end) {
		// In an affine interval the empty end is above every key.
		return adt.NewStringAffineInterval(string(w.key), "")
	}
	return adt.NewStringAffineInterval(string(w.key), string(w.end))
}

func (x *index) add(w *watcher) {
	if len(w.end) == 0 {
		set := x.keys[string(w.key)]
		if set == nil {
			set = &watcherSet{}
			x.keys[string(w.key)] = set
		}
		set.add(w)
		return
	}
	ivl := interval(w)
	if found := x.ranges.Find(ivl); found != nil {
		found.Val.(*watcherSet).add(w)
		return
	}
	set := &watcherSet{}
	set.add(w)
	x.ranges.Insert(ivl, set)
}

// remove takes out w, which is in the index.
func (x *index) remove(w *watcher) {
	if len(w.end) == 0 {
		set := x.keys[string(w.key)]
		if set.remove(w); len(set.all) == 0 {
			delete(x.keys, string(w.key))
		}
		return
	}
	ivl := interval(w)
	set := x.ranges.Find(ivl).Val.(*watcherSet)
	if set.remove(w); len(set.all) == 0 {
		x.ranges.Delete(ivl)
	}
}

// visit calls f for each watcher whose key or range covers key.
func (x *index) visit(key []byte, f func(*watcher)) {
	if set := x.keys[string(key)]; set != nil {
		for _, w := range set.all {
			f(w)
		}
	}
	if x.ranges.Len() == 0 {
		return
	}
	x.ranges.Visit(adt.NewStringAffinePoint(string(key)), func(v *adt.IntervalValue) bool {
		for _, w := range v.Val.(*watcherSet).all {
			f(w)
		}
		return true
	})
}

func (s *watcherSet) add(w *watcher) {
	w.slot = len(s.all)
	s.all = append(s.all, w)
}

func (s *watcherSet) remove(w *watcher) {
	last := len(s.all) - 1
	s.all[w.slot] = s.all[last]
	s.all[w.slot].slot = w.slot
	s.all[last] = nil
	s.all = s.all[:last]
}
