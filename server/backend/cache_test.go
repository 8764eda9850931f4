package backend

import (
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
)

func TestAnIndexEntryReadBeforeAChangeIsNotKept(t *testing.T) {
	c, err := newIndexCache(4)
	if err != nil {
		t.Fatal(err)
	}
	fresh := indexEntry{Index: coder.Index{ModRevision: 2}, exists: true}
	stale := indexEntry{Index: coder.Index{ModRevision: 1}, exists: true}
	loads := c.missing([][]byte{[]byte("k"), []byte("k")})
	again := c.missing([][]byte{[]byte("k")})
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
	loads = c.missing([][]byte{[]byte("k")})
	c.fill(loads, []indexEntry{fresh})
	if e, ok := c.get("k"); !ok || e != fresh {
		t.Fatalf("an undisturbed read was not kept")
	}
	if len(c.loading) != 0 {
		t.Fatalf("%d loads are left", len(c.loading))
	}
}

func TestARecordReadBeforeAChangeIsNotKept(t *testing.T) {
	c := newRecordCache(10_000)
	old := &coder.Record{Key: []byte("k"), ModRevision: 1}
	done := c.load(old.Key)
	c.set(&coder.Record{Key: []byte("k"), ModRevision: 2, Tombstone: true}, true)
	done(old)
	if r, ok := c.get(old.Key); ok {
		t.Fatalf("the cache holds %+v, read before the change", r)
	}
	c.load(old.Key)(old)
	if r, ok := c.get(old.Key); !ok || r != old || len(c.loading) != 0 {
		t.Fatalf("an undisturbed read was not kept")
	}
}

func TestTheRecordCacheKeepsItsBudget(t *testing.T) {
	c := newRecordCache(10_000)
	for i := range 1000 {
		c.set(&coder.Record{Key: fmt.Append(nil, i%100), Value: make([]byte, i)}, true)
		if c.bytes() > 10_000 {
			t.Fatalf("%d bytes are cached after %d", c.bytes(), i)
		}
	}
	if len(c.entries) != c.recent.Len() {
		t.Fatalf("%d entries, %d in order", len(c.entries), c.recent.Len())
	}
}
