package write

import (
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/txn"
)

// set is update of one key.
func (c *indexCache) set(key string, e indexEntry) {
	b := &batch{bases: []indexEntry{{Index: coder.Index{ModRevision: e.PrevRevision}}}}
	b.changed.Add(&txn.Change{Record: e.Record([]byte(key))})
	c.update(b)
}

func TestAnIndexEntryReadBeforeAChangeIsNotKept(t *testing.T) {
	c, err := newIndexCache(4)
	if err != nil {
		t.Fatal(err)
	}
	fresh := indexEntry{Index: coder.Index{ModRevision: 2}, exists: true}
	stale := indexEntry{Index: coder.Index{ModRevision: 1}, exists: true}
	loads, _ := c.missing([][]byte{[]byte("k"), []byte("k")})
	again, _ := c.missing([][]byte{[]byte("k")})
	if len(loads) != 1 || len(again) != 1 {
		t.Fatalf("%d and %d loads of one key", len(loads), len(again))
	}
	c.set("k", fresh)
	for i := range 4 { // evicts k: its place is empty when the reader comes back
		c.set(fmt.Sprint(i), fresh)
	}
	c.fill(loads, []indexEntry{stale})
	c.fill(again, []indexEntry{stale})
	if e, ok := c.get("k"); ok {
		t.Fatalf("the cache holds %+v, read before the change", e)
	}
	loads, _ = c.missing([][]byte{[]byte("k")})
	c.fill(loads, []indexEntry{fresh})
	if e, ok := c.get("k"); !ok || e != fresh {
		t.Fatalf("an undisturbed read was not kept")
	}
	if len(c.loading) != 0 {
		t.Fatalf("%d loads are left", len(c.loading))
	}
}
