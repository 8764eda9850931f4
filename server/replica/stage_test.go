package replica

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// listLog is a store that counts the index rows that lists return.
type listLog struct {
	sqlstore.Store
	rows atomic.Int64
}

func (s *listLog) List(ctx context.Context, q sqlstore.ListQuery) (rows []sqlstore.ListRow, more bool, err error) {
	rows, more, err = s.Store.List(ctx, q)
	s.rows.Add(int64(len(rows)))
	return rows, more, err
}

// TestDeletingRangeInPartsReadsItOnce: whoever deletes from the beginning of a prefix on,
// some keys at a time, must not make every write wait for the tombstones of those before.
func TestDeletingRangeInPartsReadsItOnce(t *testing.T) {
	const keys, part = 3000, 100
	s := &listLog{Store: newStore(t)}
	b := open(t, s, nil)
	for i := range keys {
		mustTxn(t, b, put(fmt.Sprintf("k/%04d", i), "x"))
	}
	for i := part; i <= keys; i += part {
		d := &mvcc.DeleteRequest{KeyRange: mvcc.KeyRange{Key: []byte("k/"), End: fmt.Appendf(nil, "k/%04d", i)},
			PrevKV: i%200 == 0}
		res := mustTxn(t, b, &mvcc.Txn{Then: []mvcc.Op{{Delete: d}}})
		if n := res.Results[0].Delete.Deleted; n != part {
			t.Fatalf("up to %d %d keys were deleted", i, n)
		}
	}
	if n := s.rows.Load(); n > 3*keys {
		t.Errorf("%d rows were read to delete %d keys", n, keys)
	}
	if res := mustRange(t, b, &mvcc.RangeRequest{KeyRange: all()}); res.Count != 0 {
		t.Errorf("%d keys are left", res.Count)
	}
}
