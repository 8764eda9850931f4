package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestStaleRecordIsNotWritten: a cached record that is older than the key's index row is
// not taken for the version that a write replaces.
func TestStaleRecordIsNotWritten(t *testing.T) {
	k := mvcc.KeyRange{Key: []byte("k")}
	for name, txn := range map[string]*mvcc.Txn{
		"put":    {Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: k.Key, Value: []byte("3"), PrevKV: true}}}},
		"delete": {Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: k, PrevKV: true}}}},
		"compare": {
			Compares: []mvcc.Compare{{KeyRange: k, Target: mvcc.CompareValue, Value: []byte("2")}},
			Then:     []mvcc.Op{{Put: &mvcc.PutRequest{Key: k.Key, Value: []byte("3"), PrevKV: true}}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			b := open(t, store, nil)
			mustTxn(t, b, put("k", "1"))
			old := mustRange(t, b, &mvcc.RangeRequest{KeyRange: k}).Records[0]
			mustTxn(t, b, put("k", "2"))
			b.view.Purge(b.Revision())
			b.view.BeginKey(k.Key).KeepKey(old) // must not happen
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
			mustCompact(t, b, 5, true)
			for rev := int64(2); rev <= 3; rev++ {
				if _, err := store.Get(t.Context(), coder.EncodeVersionKey(k.Key, rev)); !errors.Is(err, sqlstore.ErrKeyNotFound) {
					t.Errorf("compaction left revision %d: %v", rev, err)
				}
			}
		})
	}
}

// TestCompactionRemovesRowsOnce: log rows that name a version twice do not stop
// compaction.
func TestCompactionRemovesRowsOnce(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	for i := range 4 {
		mustTxn(t, b, put("k", fmt.Sprint(i)))
	}
	// The commits of revisions 3 and 4 both say that they replaced revision 2.
	row := coder.EncodeLog(time.Time{}, []coder.Change{{Revision: 4, Key: []byte("k"), PrevRevision: 2}})
	putRow(t, store, coder.EncodeLogKey(4, 1), row[0])
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	defer cancel()
	if _, err := b.Compact(ctx, auth.System, 5, true); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(ctx, coder.EncodeVersionKey([]byte("k"), 2)); !errors.Is(err, sqlstore.ErrKeyNotFound) {
		t.Errorf("compaction left revision 2: %v", err)
	}
}
