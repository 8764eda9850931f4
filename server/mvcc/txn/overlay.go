package txn

import (
	"bytes"
	"slices"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Overlay is what changes have made of the keys that they have changed, in key order, over a state without the
// changes. Not safe for concurrent use.
type Overlay []*Changed

// Changed is what changes have made of a key.
type Changed struct {
	Record  *coder.Record // may be a tombstone
	Existed bool          // before the changes
	Times   int           // how often it was changed
}

// Live returns the record of the key, nil if the key does not exist.
func (c *Changed) Live() *coder.Record {
	if c.Record.Tombstone {
		return nil
	}
	return c.Record
}

// find returns the position of key, or the one it would have.
func (o Overlay) find(key []byte) (int, bool) {
	return slices.BinarySearchFunc(o, key, func(c *Changed, key []byte) int { return bytes.Compare(c.Record.Key, key) })
}

// Add adds a change, which follows those before.
func (o *Overlay) Add(c *Change) {
	i, known := o.find(c.Record.Key)
	if !known {
		*o = slices.Insert(*o, i, &Changed{Existed: c.Prev != nil})
	}
	changed := (*o)[i]
	changed.Record = c.Record
	changed.Times++
}

// Get returns what the changes have made of key, nil if they have not changed it.
func (o Overlay) Get(key []byte) *Changed {
	if i, known := o.find(key); known {
		return o[i]
	}
	return nil
}

// in returns the changed keys of kr.
func (o Overlay) in(kr mvcc.KeyRange) Overlay {
	first, _ := o.find(kr.Key)
	end := first
	for end < len(o) && coder.Contains(kr.Key, kr.End, o[end].Record.Key) {
		end++
	}
	return o[first:end]
}

// Net returns by how many keys the changes have made kr grow.
func (o Overlay) Net(kr mvcc.KeyRange) (n int64) {
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
func (o Overlay) List(kr mvcc.KeyRange, limit int64,
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
			n, found := newer.find(records[len(records)-1].Key)
			if found {
				n++
			}
			known = newer[:n]
		}
		switch merged := known.merge(records); {
		case limit > 0 && int64(len(merged)) >= limit:
			return slices.Clone(merged[:limit]), nil
		case whole:
			return merged, nil
		}
	}
}

// merge returns records, which are live and in key order, with the changes.
func (o Overlay) merge(records []*coder.Record) []*coder.Record {
	if len(o) == 0 {
		return records
	}
	merged := make([]*coder.Record, 0, len(records)+len(o))
	for len(records) > 0 || len(o) > 0 {
		order := 1
		if len(o) == 0 {
			order = -1
		} else if len(records) > 0 {
			order = bytes.Compare(records[0].Key, o[0].Record.Key)
		}
		rec := (*coder.Record)(nil)
		if order <= 0 {
			rec, records = records[0], records[1:]
		}
		if order >= 0 {
			rec, o = o[0].Live(), o[1:]
		}
		if rec != nil {
			merged = append(merged, rec)
		}
	}
	return merged
}
