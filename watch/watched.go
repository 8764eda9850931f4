package watch

import (
	"bytes"
	"cmp"
	"slices"

	"go.etcd.io/etcd/pkg/v3/adt"
)

// Watched is a key or a range that is watched.
type Watched struct {
	Key, End []byte // as coder.Contains has them
	Watchers int
	Lagging  int // of them, that read from the source what they missed
}

// Watched returns the ranges that are watched, those with the most watchers first and at most so many, and how many
// there are.
func (h *Hub) Watched(most int) (ranges []Watched, count int) {
	found := make(map[[2]string]*Watched)
	at := func(w *watcher) *Watched {
		name := [2]string{string(w.key), string(w.end)}
		if found[name] == nil {
			found[name] = &Watched{Key: w.key, End: w.end}
		}
		return found[name]
	}
	h.mu.Lock()
	h.index.each(func(set *watcherSet) { at(set.all[0]).Watchers += len(set.all) })
	for w := range h.lagging {
		r := at(w)
		r.Watchers++
		r.Lagging++
	}
	h.mu.Unlock()
	for _, r := range found {
		ranges = append(ranges, *r)
	}
	slices.SortFunc(ranges, func(a, b Watched) int {
		return cmp.Or(cmp.Compare(b.Watchers, a.Watchers), bytes.Compare(a.Key, b.Key), bytes.Compare(a.End, b.End))
	})
	return ranges[:min(most, len(ranges))], len(ranges)
}

// each calls f for the watchers of each key and range. No set is empty.
func (x *index) each(f func(*watcherSet)) {
	for _, set := range x.keys {
		f(set)
	}
	if x.ranges.Len() == 0 {
		return
	}
	x.ranges.Visit(adt.NewStringAffineInterval("\x00", ""), func(v *adt.IntervalValue) bool {
		f(v.Val.(*watcherSet))
		return true
	})
}
