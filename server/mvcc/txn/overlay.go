package txn

import (
	"bytes"
	"iter"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// maxChunk bounds how many keys of an Overlay move when one comes between them.
const maxChunk = 1024

// Overlay is what changes have made of the keys that they have changed, in key order, over a state without the
// changes. The zero Overlay is empty. Not safe for concurrent use.
type Overlay struct {
	chunks [][]*Changed // none is empty
	n      int
	added  int // changes
}

// Changed is what changes have made of a key.
type Changed struct {
	Record  *coder.Record // may be a tombstone
	Existed bool          // before the changes
	Times   int           // how often it was changed
	First   int           // how many changes, of any key, were added before the first of them
}

// Live returns the record of the key, nil if the key does not exist.
func (c *Changed) Live() *coder.Record {
	if c.Record.Tombstone {
		return nil
	}
	return c.Record
}

// Len returns the number of changed keys.
func (o *Overlay) Len() int { return o.n }

// All returns what was changed, in key order.
func (o *Overlay) All() iter.Seq[*Changed] { return o.from(0, 0) }

func (o *Overlay) from(chunk, i int) iter.Seq[*Changed] {
	return func(yield func(*Changed) bool) {
		for n := chunk; n < len(o.chunks); n++ {
			keys := o.chunks[n]
			if n == chunk {
				keys = keys[i:]
			}
			for _, c := range keys {
				if !yield(c) {
					return
				}
			}
		}
	}
}

// find returns the position of key, or the one it would have: in the last chunk that does not begin after it.
func (o *Overlay) find(key []byte) (chunk, i int, known bool) {
	if last := len(o.chunks) - 1; last >= 0 { // a range delete adds keys in order
		if keys := o.chunks[last]; compare(keys[len(keys)-1], key) < 0 {
			return last, len(keys), false
		}
	}
	chunk, known = slices.BinarySearchFunc(o.chunks, key, func(c []*Changed, key []byte) int { return compare(c[0], key) })
	if known || chunk == 0 {
		return chunk, 0, known
	}
	i, known = slices.BinarySearchFunc(o.chunks[chunk-1], key, compare)
	return chunk - 1, i, known
}

func compare(c *Changed, key []byte) int { return bytes.Compare(c.Record.Key, key) }

// Add adds a change, which follows those before.
func (o *Overlay) Add(c *Change) {
	chunk, i, known := o.find(c.Record.Key)
	o.added++
	if known {
		changed := o.chunks[chunk][i]
		changed.Record = c.Record
		changed.Times++
		return
	}
	o.n++
	if len(o.chunks) == 0 {
		o.chunks = [][]*Changed{nil}
	}
	keys := slices.Insert(o.chunks[chunk], i,
		&Changed{Record: c.Record, Existed: c.Prev != nil, Times: 1, First: o.added - 1})
	o.chunks[chunk] = keys
	if half := len(keys) / 2; len(keys) > maxChunk {
		o.chunks[chunk] = keys[:half:half]
		o.chunks = slices.Insert(o.chunks, chunk+1, keys[half:])
	}
}

// Get returns what the changes have made of key, nil if they have not changed it.
func (o *Overlay) Get(key []byte) *Changed {
	if chunk, i, known := o.find(key); known {
		return o.chunks[chunk][i]
	}
	return nil
}

// in returns what was changed in kr, in key order.
func (o *Overlay) in(kr mvcc.KeyRange) (changed []*Changed) {
	chunk, i, _ := o.find(kr.Key)
	for c := range o.from(chunk, i) {
		if !coder.Contains(kr.Key, kr.End, c.Record.Key) {
			break
		}
		changed = append(changed, c)
	}
	return changed
}

// Net returns by how many keys the changes have made kr grow.
func (o *Overlay) Net(kr mvcc.KeyRange) (n int64) {
	for _, c := range o.in(kr) {
		switch {
		case c.Existed && c.Live() == nil:
			n--
		case !c.Existed && c.Live() != nil:
			n++
		}
	}
	return n
}

// List returns the records of kr with the changes, in key order: at most limit, 0 for all. list returns those
// without the changes, at most as many as it is asked for. If nothing in kr was changed, the slice is that of list.
func (o *Overlay) List(kr mvcc.KeyRange, limit int64,
	list func(limit int64) ([]*coder.Record, error)) ([]*coder.Record, error) {
	newer := o.in(kr)
	for ask := limit; ; ask = min(2*ask, limit+int64(len(newer))) {
		records, err := list(ask)
		if err != nil {
			return nil, err
		}
		known := newer
		whole := limit == 0 || int64(len(records)) < ask
		if !whole { // nothing is known after the last record
			n, found := slices.BinarySearchFunc(newer, records[len(records)-1].Key, compare)
			if found {
				n++
			}
			known = newer[:n]
		}
		switch merged := merge(records, known); {
		case limit > 0 && int64(len(merged)) >= limit:
			return slices.Clone(merged[:limit]), nil
		case whole:
			return merged, nil
		}
	}
}

// merge returns records, which are live, with what was changed. Both are in key order.
func merge(records []*coder.Record, changed []*Changed) []*coder.Record {
	if len(changed) == 0 {
		return records
	}
	merged := make([]*coder.Record, 0, len(records)+len(changed))
	for len(records) > 0 || len(changed) > 0 {
		order := 1
		if len(changed) == 0 {
			order = -1
		} else if len(records) > 0 {
			order = bytes.Compare(records[0].Key, changed[0].Record.Key)
		}
		rec := (*coder.Record)(nil)
		if order <= 0 {
			rec, records = records[0], records[1:]
		}
		if order >= 0 {
			rec, changed = changed[0].Live(), changed[1:]
		}
		if rec != nil {
			merged = append(merged, rec)
		}
	}
	return merged
}
