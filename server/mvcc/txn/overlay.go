package txn

import (
	"bytes"
	"iter"
	"slices"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Overlay has the newest records of the keys that changes have changed, over a state without the
// changes. The zero Overlay is empty. Not safe for concurrent use.
type Overlay struct {
	keys    map[string]Changed
	lookups int                   // calls of In
	sorted  *btree.BTreeG[string] // keys; nil before there were more than fewLookups
}

// Changed is what changes have made of a key.
type Changed struct {
	Record  *coder.Record // may be a tombstone
	Existed bool          // before the changes
	Times   int           // how often it was changed
}

// NewOverlay returns an empty overlay with room for n keys.
func NewOverlay(n int) Overlay { return Overlay{keys: make(map[string]Changed, n)} }

// Len returns the number of changed keys.
func (o *Overlay) Len() int { return len(o.keys) }

// All returns the changed keys in no order.
func (o *Overlay) All() iter.Seq2[string, Changed] {
	return func(yield func(string, Changed) bool) {
		for k, c := range o.keys {
			if !yield(k, c) {
				return
			}
		}
	}
}

// Add adds a change, which follows those before.
func (o *Overlay) Add(c *Change) {
	if o.keys == nil {
		o.keys = make(map[string]Changed)
	}
	k := string(c.Record.Key)
	changed, known := o.keys[k]
	if !known {
		changed.Existed = c.Prev != nil
		if o.sorted != nil {
			o.sorted.ReplaceOrInsert(k)
		}
	}
	changed.Record = c.Record
	changed.Times++
	o.keys[k] = changed
}

// Get returns what the changes have made of key; false if they have not changed it.
func (o *Overlay) Get(key []byte) (Changed, bool) {
	c, ok := o.keys[string(key)]
	return c, ok
}

// fewLookups is how often In searches all changed keys before it sorts them.
const fewLookups = 16

// In returns the changed records of kr in key order, tombstones included.
func (o *Overlay) In(kr mvcc.KeyRange) (found []*coder.Record) {
	if len(o.keys) == 0 {
		return nil
	}
	if o.lookups++; o.lookups > fewLookups {
		o.sort()
		o.sorted.AscendGreaterOrEqual(string(kr.Key), func(k string) bool {
			rec := o.keys[k].Record
			if !coder.Contains(kr.Key, kr.End, rec.Key) {
				return false
			}
			found = append(found, rec)
			return true
		})
		return found
	}
	for _, c := range o.keys {
		if coder.Contains(kr.Key, kr.End, c.Record.Key) {
			found = append(found, c.Record)
		}
	}
	slices.SortFunc(found, func(a, b *coder.Record) int { return bytes.Compare(a.Key, b.Key) })
	return found
}

// sort makes sure that sorted exists.
func (o *Overlay) sort() {
	if o.sorted != nil {
		return
	}
	o.sorted = btree.NewOrderedG[string](32)
	for k := range o.keys {
		o.sorted.ReplaceOrInsert(k)
	}
}

// Net returns by how many keys the changes have made kr grow.
func (o *Overlay) Net(kr mvcc.KeyRange) (n int64) {
	for _, rec := range o.In(kr) {
		existed := o.keys[string(rec.Key)].Existed
		switch {
		case existed && rec.Tombstone:
			n--
		case !existed && !rec.Tombstone:
			n++
		}
	}
	return n
}

// Merge returns records, which are live, with newer versions of some keys. All are in key order, and newer
// may have tombstones. It returns records itself if newer is empty.
func Merge(records, newer []*coder.Record) []*coder.Record {
	if len(newer) == 0 {
		return records
	}
	merged := make([]*coder.Record, 0, len(records)+len(newer))
	for len(records) > 0 || len(newer) > 0 {
		order := 1 // the next is one of newer
		switch {
		case len(newer) == 0:
			order = -1
		case len(records) > 0:
			order = bytes.Compare(records[0].Key, newer[0].Key)
		}
		if order < 0 {
			merged, records = append(merged, records[0]), records[1:]
			continue
		}
		if order == 0 {
			records = records[1:]
		}
		if !newer[0].Tombstone {
			merged = append(merged, newer[0])
		}
		newer = newer[1:]
	}
	return merged
}

// ListOver returns the live records of kr: those that list returns, at most as many as it is asked for, with
// the changes of o. It returns at most limit records; 0: all.
func ListOver(o *Overlay, kr mvcc.KeyRange, limit int64,
	list func(limit int64) ([]*coder.Record, error)) ([]*coder.Record, error) {
	newer, ask := o.In(kr), limit
	if limit > 0 {
		ask += int64(len(newer)) // each may hide a record
	}
	records, err := list(ask)
	if err != nil {
		return nil, err
	}
	if records = Merge(records, newer); limit > 0 && int64(len(records)) > limit {
		records = records[:limit]
	}
	return records, nil
}
