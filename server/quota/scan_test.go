package quota

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestScanBeginsDuringARemoval: it counts what the removal leaves.
func TestScanBeginsDuringARemoval(t *testing.T) {
	store := memstore.New()
	defer func() { require.NoError(t, store.Close()) }()
	kept, gone := coder.EncodeLogKey(2, 0), coder.EncodeLogKey(1, 0)
	b := store.BeginBatchWrite()
	b.Put(kept, []byte("kept"))
	b.Put(gone, []byte("gone"))
	require.NoError(t, b.Commit(t.Context()))
	c := NewCount(coder.FenceToken{Sequence: 2})
	scanned := make(chan error, 1)
	_, err := c.Remove(t.Context(), nil, func() ([]RemovedRow, error) {
		go func() {
			_, err := c.Scan(t.Context(), store)
			scanned <- err
		}()
		for began := false; !began; time.Sleep(time.Millisecond) {
			c.mu.Lock()
			began = c.scan != nil
			c.mu.Unlock()
		}
		removed := int64(len(gone) + len("gone"))
		b := store.BeginBatchWrite()
		b.Del(gone)
		b.Put(coder.RemovedKey(), coder.EncodeInt64(removed))
		return []RemovedRow{{Key: gone, Bytes: removed}}, b.Commit(t.Context())
	})
	require.NoError(t, err)
	c.Committed(2, nil)
	require.NoError(t, <-scanned)
	require.EqualValues(t, len(kept)+len("kept"), c.added-c.removed)
}
