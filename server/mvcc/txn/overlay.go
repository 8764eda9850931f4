package txn

import (
	"bytes"
	"slices"

	"github.com/google/btree"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Overlay has the newest records of the keys that changes have changed, over a state without the
// changes. The zero Overlay is empty. Not safe for concurrent use.
type Overlay struct {
	keys *btree.BTreeG[Changed] // nil: none
}

// Changed is what changes have made of a key.
type Changed struct {
	key     []byte
	Record  *coder.Record // may be a tombstone
	Existed bool          // before the changes
	Times   int           // how often it was changed
}

func newTree() *btree.BTreeG[Changed] {
	return btree.NewG(16, func(a, b Changed) bool { return bytes.Compare(a.key, b.key) < 0 })
}

// Len returns the number of changed keys.
func (o *Overlay) Len() int {
	if o.keys == nil {
		return 0
	}
	return o.keys.Len()
}

// All calls see with the changed keys, in key order.
func (o *Overlay) All(see func(Changed) bool) {
	if o.keys != nil {
		o.keys.Ascend(see)
	}
}

// Add adds a change, which follows those before.
func (o *Overlay) Add(c *Change) {
	if o.keys == nil {
		o.keys = newTree()
	}
	changed, known := o.Get(c.Record.Key)
	if !known {
		changed.Existed = c.Prev != nil
	}
	changed.key, changed.Record = c.Record.Key, c.Record
	changed.Times++
	o.keys.ReplaceOrInsert(changed)
}

// Get returns what the changes have made of key; false if they have not changed it.
func (o *Overlay) Get(key []byte) (Changed, bool) {
	if o.keys == nil {
		return Changed{}, false
	}
	return o.keys.Get(Changed{key: key})
}

// each calls see with the changed keys of kr, in key order.
func (o *Overlay) each(kr mvcc.KeyRange, see func(Changed)) {
	if o.keys == nil {
		return
	}
	o.keys.AscendGreaterOrEqual(Changed{key: kr.Key}, func(c Changed) bool {
		in := coder.Contains(kr.Key, kr.End, c.key)
		if in {
			see(c)
		}
		return in
	})
}

// Net returns by how many keys the changes have made kr grow.
func (o *Overlay) Net(kr mvcc.KeyRange) (n int64) {
	o.each(kr, func(c Changed) {
		switch {
		case c.Existed && c.Record.Tombstone:
			n--
		case !c.Existed && !c.Record.Tombstone:
			n++
		}
	})
	return n
}

// List returns the records of kr with the changes, in key order: at most limit, 0 for all. list returns those
// without the changes, at most as many as it is asked for.
func (o *Overlay) List(kr mvcc.KeyRange, limit int64,
	list func(limit int64) ([]*coder.Record, error)) ([]*coder.Record, error) {
	var newer []*coder.Record
	o.each(kr, func(c Changed) { newer = append(newer, c.Record) })
	for ask := limit; ; ask = min(2*ask, limit+int64(len(newer))) {
		records, err := list(ask)
		if err != nil {
			return nil, err
		}
		known := newer
		whole := limit == 0 || int64(len(records)) < ask
		if !whole { // nothing is known after the last record
			n, found := slices.BinarySearchFunc(newer, records[len(records)-1].Key,
				func(r *coder.Record, key []byte) int { return bytes.Compare(r.Key, key) })
			if found {
				n++
			}
			known = newer[:n]
		}
		switch merged := Merge(records, known); {
		case limit > 0 && int64(len(merged)) >= limit:
			return slices.Clone(merged[:limit]), nil
		case whole:
			return merged, nil
		}
	}
}

// Merge returns records, which are live, with newer versions of some keys. All are in key order, and newer
// may have tombstones. It returns records itself if newer is empty.
func Merge(records, newer []*coder.Record) []*coder.Record {
	if len(newer) == 0 {
		return records
	}
	merged := make([]*coder.Record, 0, len(records)+len(newer))
	next := func() { // of newer
		if !newer[0].Tombstone {
			merged = append(merged, newer[0])
		}
		newer = newer[1:]
	}
	for _, rec := range records {
		hidden := false
		for len(newer) > 0 && bytes.Compare(newer[0].Key, rec.Key) <= 0 {
			hidden = bytes.Equal(newer[0].Key, rec.Key)
			next()
		}
		if !hidden {
			merged = append(merged, rec)
		}
	}
	for len(newer) > 0 {
		next()
	}
	return merged
}
