package replica

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// statements counts the statements that read: each is a round trip to the database.
type statements struct {
	sqlstore.Store
	n atomic.Int64
}

func (s *statements) Get(ctx context.Context, key []byte) ([]byte, error) {
	s.n.Add(1)
	return s.Store.Get(ctx, key)
}

func (s *statements) MultiGet(ctx context.Context, keys [][]byte) ([][]byte, error) {
	s.n.Add(1)
	return s.Store.MultiGet(ctx, keys)
}

func (s *statements) List(ctx context.Context, q sqlstore.ListQuery) ([]sqlstore.ListRow, bool, error) {
	s.n.Add(1)
	return s.Store.List(ctx, q)
}

func (s *statements) Lookup(ctx context.Context, keys [][]byte, maxBytes int) ([]sqlstore.ListRow, bool, error) {
	s.n.Add(1)
	return s.Store.Lookup(ctx, keys, maxBytes)
}

func (s *statements) Count(ctx context.Context, start, end []byte, rev int64) (live, newer int64, err error) {
	s.n.Add(1)
	return s.Store.Count(ctx, start, end, rev)
}

func (s *statements) SeekNth(ctx context.Context, start, end []byte, n int) ([]byte, error) {
	s.n.Add(1)
	return s.Store.SeekNth(ctx, start, end, n)
}

func (s *statements) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	s.n.Add(1)
	return s.Store.Iter(ctx, r)
}

// TestManyKeysTakeFewStatements: the database may be far away, and a request has some seconds.
func TestManyKeysTakeFewStatements(t *testing.T) {
	const keys, most = 40_000, 40
	for _, cached := range []bool{false, true} {
		t.Run(fmt.Sprintf("cached=%t", cached), func(t *testing.T) {
			s := &statements{Store: newStore(t)}
			b := open(t, s, func(c *Config) {
				if !cached {
					c.RecordCache = 0
				}
			})
			attach(t, b, "k/", keys, 0)
			s.n.Store(0)
			require.EqualValues(t, keys, mustRange(t, b, &mvcc.RangeRequest{KeyRange: rangeOf("k/", "k0")}).Count)
			require.LessOrEqual(t, s.n.Load(), int64(most), "statements for a list of all keys")
			s.n.Store(0)
			res := mustTxn(t, b, &mvcc.Txn{Then: []mvcc.Op{{Delete: &mvcc.DeleteRequest{KeyRange: rangeOf("k/", "k0")}}}})
			require.EqualValues(t, keys, res.Results[0].Delete.Deleted)
			require.LessOrEqual(t, s.n.Load(), int64(most), "statements for a delete of all keys")
		})
	}
}
