package member

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

func (g *group) put(row []byte) {
	b := g.store.BeginBatchWrite()
	b.Put(coder.LockKey(), row)
	require.NoError(g.t, b.Commit(g.t.Context()))
}

// TestARowThatIsNotReadableIsNotTaken.
func TestARowThatIsNotReadableIsNotTaken(t *testing.T) {
	for name, row := range map[string]string{
		"no id":      `{"holder":"no id","incarnation":3,"grant":1}`,
		"no grant":   `{"holder":255,"incarnation":3}`,
		"no process": `{"holder":255,"grant":1}`,
		"no past":    `{"holder":255,"incarnation":3,"grant":4}`,
	} {
		t.Run(name, func(t *testing.T) {
			elect(t, quick, func(t *testing.T, g *group) {
				bad := coder.EncodeLock(3, []byte(row))
				g.put(bad)
				a := g.join("a")
				a.await("the lock row cannot be read", 1)
				time.Sleep(5 * replaced)
				g.none()
				raw, err := g.store.Get(t.Context(), coder.LockKey())
				require.NoError(t, err)
				require.Equal(t, bad, raw)
			})
		})
	}
}

// FuzzLockRow: no row makes the decoder panic, and a row that it takes can be
// replaced by one with the next number and a higher grant.
func FuzzLockRow(f *testing.F) {
	f.Add(lock{}.grantTo(7, 9).raw)
	f.Add(lock{}.grantTo(0, 0).raw)
	f.Add(coder.EncodeLock(9, []byte(`{"holder":255,"incarnation":3}`)))
	f.Add(coder.EncodeLock(1, nil))
	f.Add(coder.EncodeLock(9, []byte(`{"renewTime":"2026-01-01T00:00:00Z","handedOver":true}`)))
	f.Add(coder.EncodeLock(2, []byte(`[]`)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decodeLock(raw)
		if err != nil || raw == nil {
			return
		}
		if got.sequence < 1 || !bytes.Equal(got.raw, raw) {
			t.Fatalf("%q was taken as number %d", raw, got.sequence)
		}
		next := got.grantTo(got.Holder, got.Incarnation)
		if got.sequence+1 < 1 || got.Grant+1 < 1 {
			return // after 2^63 changes
		}
		back, err := decodeLock(next.raw)
		if err != nil || back.sequence != got.sequence+1 || back.Holder != got.Holder ||
			back.Incarnation != got.Incarnation ||
			back.Grant <= got.Grant || back.Grant < back.sequence {
			t.Fatalf("%q is read as %+v, its successor as %+v, %v", raw, got, back, err)
		}
	})
}
