package backend

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestStaleRecordIsNotWritten: a cached record that is older than the key's index row is
// not taken for the version that a write replaces.
func TestStaleRecordIsNotWritten(t *testing.T) {
	k := KeyRange{Key: []byte("k")}
	for name, txn := range map[string]*Txn{
		"put":    {Then: []Op{{Put: &PutRequest{Key: k.Key, Value: []byte("3"), PrevKV: true}}}},
		"delete": {Then: []Op{{Delete: &DeleteRequest{KeyRange: k, PrevKV: true}}}},
		"compare": {
			Compares: []Compare{{KeyRange: k, Target: CompareValue, Value: []byte("2")}},
			Then:     []Op{{Put: &PutRequest{Key: k.Key, Value: []byte("3"), PrevKV: true}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			b := open(t, store, nil)
			mustTxn(t, b, put("k", "1"))
			old := mustRange(t, b, &RangeRequest{KeyRange: k}).Records[0]
			mustTxn(t, b, put("k", "2"))
			b.records.set(old, true) // must not happen
			res := mustTxn(t, b, txn)
			if !res.Succeeded {
				t.Fatal("the compare saw the old value")
			}
			prev := (*coder.Record)(nil)
			if p := res.Results[0].Put; p != nil {
				prev = p.Prev
			} else {
				prev = res.Results[0].Delete.Prev[0]
			}
			if string(prev.Value) != "2" || prev.ModRevision != 3 {
				t.Errorf("the write replaced %q of revision %d", prev.Value, prev.ModRevision)
			}
			mustTxn(t, b, put("other", ""))
			if _, err := b.Compact(t.Context(), 5, true); err != nil {
				t.Fatal(err)
			}
			for rev := int64(2); rev <= 3; rev++ {
				if _, err := store.Get(t.Context(), coder.EncodeVersionKey(k.Key, rev)); !errors.Is(err, sqlstore.ErrKeyNotFound) {
					t.Errorf("compaction left revision %d: %v", rev, err)
				}
			}
		})
	}
}

// TestCompactionRemovesARowOnce: log rows that name a version twice do not stop
// compaction.
func TestCompactionRemovesARowOnce(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	for i := range 4 {
		mustTxn(t, b, put("k", fmt.Sprint(i)))
	}
	// The commits of revisions 3 and 4 both say that they replaced revision 2.
	row := coder.EncodeLog([]coder.Change{{Revision: 4, Key: []byte("k"), PrevRevision: 2}})
	putRow(t, store, coder.EncodeLogKey(4, 1), row[0])
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := b.Compact(ctx, 5, true); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(ctx, coder.EncodeVersionKey([]byte("k"), 2)); !errors.Is(err, sqlstore.ErrKeyNotFound) {
		t.Errorf("compaction left revision 2: %v", err)
	}
}

// undeletable is a store whose rows cannot be removed while it is stuck.
type undeletable struct {
	sqlstore.Store
	stuck atomic.Bool
}

type undeletableBatch struct {
	sqlstore.BatchWrite
	u       *undeletable
	removes bool
}

func (u *undeletable) BeginBatchWrite() sqlstore.BatchWrite {
	return &undeletableBatch{BatchWrite: u.Store.BeginBatchWrite(), u: u}
}

func (b *undeletableBatch) Del(key []byte) {
	b.removes = true
	b.BatchWrite.Del(key)
}

func (b *undeletableBatch) Commit(ctx context.Context) error {
	if b.removes && b.u.stuck.Load() {
		return fmt.Errorf("%w: made up", sqlstore.ErrUnavailable)
	}
	return b.BatchWrite.Commit(ctx)
}

// TestPhysicalCompactionIsBounded: while rows cannot be removed, the caller gets an
// error in bounded time. Removing them continues.
func TestPhysicalCompactionIsBounded(t *testing.T) {
	u := &undeletable{Store: newStore(t)}
	b := open(t, u, nil)
	for i := range 4 {
		mustTxn(t, b, put("k", fmt.Sprint(i)))
	}
	u.stuck.Store(true)
	c := b.leading.Load().compactor
	c.patience = 10 * time.Millisecond
	if _, err := b.Compact(t.Context(), 4, true); !errors.Is(err, ErrTimeout) {
		t.Fatalf("%v, want ErrTimeout", err)
	}
	c.mu.Lock()
	waiting := len(c.waiters)
	c.mu.Unlock()
	if waiting > 0 {
		t.Errorf("%d callers are still registered", waiting)
	}
	if b.CompactRevision() != 4 {
		t.Errorf("compact revision %d", b.CompactRevision())
	}
	u.stuck.Store(false)
	c.patience = compactPatience
	mustTxn(t, b, put("other", ""))
	if _, err := b.Compact(t.Context(), 6, true); err != nil {
		t.Fatal(err)
	}
	if _, err := u.Get(t.Context(), coder.EncodeVersionKey([]byte("k"), 4)); !errors.Is(err, sqlstore.ErrKeyNotFound) {
		t.Errorf("compaction left revision 4: %v", err)
	}
}

// TestCachesShrinkWhateverTheyHold: a segment whose history cannot be given up goes as a
// whole.
func TestCachesShrinkWhateverTheyHold(t *testing.T) {
	c := newTestRangeCache(t, 4096)
	tombstone := item{rec: &coder.Record{Key: []byte("a"), ModRevision: 9, Tombstone: true}}
	s := newSegment([]byte("a"), []byte("b"), true, 9, []item{tombstone})
	s.floor, s.last = 5, 5 // must not happen: the newest change is revision 9
	c.mu.Lock()
	c.add(s, c.recent.PushFront(s))
	c.budget = 1
	c.shrink()
	c.mu.Unlock()
	if c.used != 0 || c.segments.Len() != 0 {
		t.Errorf("%d segments of %d bytes are left", c.segments.Len(), c.used)
	}
}
