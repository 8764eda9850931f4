package member

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
)

// earlierRow returns a lock row of an earlier version: the record of client-go's leader
// election with three fields more.
func earlierRow(sequence int64, holder string) []byte {
	seconds := 2
	if holder == "" {
		seconds = 1
	}
	return coder.EncodeLock(sequence, fmt.Appendf(nil,
		`{"holderIdentity":%q,"leaseDurationSeconds":%d,"acquireTime":"2026-01-01T00:00:00Z","renewTime":"2026-01-01T00:00:09Z",`+
			`"leaderTransitions":3,"incarnation":"7d444840-9dc0-11d1-b245-5ffdce74fad2","handedOver":false}`, holder, seconds))
}

func (g *group) put(row []byte) {
	b := g.store.BeginBatchWrite()
	b.Put(coder.LockKey(), row)
	require.NoError(g.t, b.Commit(g.t.Context()))
}

// TestARowOfAnEarlierVersionHoldsWhileItChanges: an earlier version renews the row. It
// is taken when it was unchanged for the lease, and at once if it was released.
func TestARowOfAnEarlierVersionHoldsWhileItChanges(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		writeRow(t, g.store, "old", `{"id":255,"incarnation":3,"heartbeat":1,"heartbeat_interval_ms":2000,"answer_interval_ms":100}`)
		g.put(earlierRow(41, "ff"))
		b := g.join("b")
		for i := range int64(20) {
			time.Sleep(quick.LeaseDuration * 3 / 4)
			g.none()
			require.EqualValues(t, 255, b.Holder())
			g.put(earlierRow(42+i, "ff"))
		}
		// Neither a silent member row nor a stopped one says anything of it.
		gone, err := b.Suspect(t.Context(), 255, 40*time.Millisecond)
		require.NoError(t, err)
		require.True(t, gone)
		g.none()
		began := time.Now()
		term := g.next()
		require.Greater(t, time.Since(began), quick.LeaseDuration/2)
		require.Same(t, b, term.of)
		require.EqualValues(t, 62, g.row().sequence)
		require.EqualValues(t, 62, g.row().grant, "above all grants so far")

		// It takes the lock back, and its row counts.
		g.put(earlierRow(63, "ff"))
		term.ends(t)
		b.seesIDs(255, b.id(), 255, b.id())
		again := g.next()
		require.EqualValues(t, 64, g.row().grant)

		g.put(earlierRow(65, ""))
		again.ends(t)
		began = time.Now()
		g.next()
		require.Less(t, time.Since(began), quick.LeaseDuration/2, "released")
	})
}

// sees with ids.
func (c *candidate) seesIDs(ids ...uint64) {
	c.t.Helper()
	for _, id := range ids {
		require.Equal(c.t, id, wait(c.t, c.observed, "a holder"))
	}
}

// TestAnEarlierVersionUnderTheSameNameWasReplaced: the lock has to expire all the same.
func TestAnEarlierVersionUnderTheSameNameWasReplaced(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		writeRow(t, g.store, "a", `{"id":255,"incarnation":3,"heartbeat":9,"heartbeat_interval_ms":2000,"answer_interval_ms":100}`)
		g.put(earlierRow(7, "ff"))
		began := time.Now()
		a := g.join("a")
		require.EqualValues(t, 255, a.id())
		g.next().live(t)
		require.GreaterOrEqual(t, time.Since(began), quick.LeaseDuration)
	})
}

// TestARowThatIsNotReadableIsNotTaken.
func TestARowThatIsNotReadableIsNotTaken(t *testing.T) {
	elect(t, quick, func(t *testing.T, g *group) {
		bad := coder.EncodeLock(3, []byte(`{"holderIdentity":"no id"}`))
		g.put(bad)
		a := g.join("a")
		a.await("the lock row cannot be read", 1)
		time.Sleep(5 * quick.LeaseDuration)
		g.none()
		raw, err := g.store.Get(t.Context(), coder.LockKey())
		require.NoError(t, err)
		require.Equal(t, bad, raw)
	})
}

// FuzzLockRow: no row makes the decoder panic, and a row that it takes can be
// replaced by one with the next number and a higher grant.
func FuzzLockRow(f *testing.F) {
	f.Add(lock{}.grantTo(7, 9).raw)
	f.Add(lock{}.grantTo(0, 0).raw)
	f.Add(earlierRow(9, "ff"))
	f.Add(earlierRow(9, ""))
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
		next := got.grantTo(got.holder, got.incarnation)
		if got.sequence+1 < 1 || got.grant+1 < 1 {
			return // after 2^63 changes
		}
		back, err := decodeLock(next.raw)
		if err != nil || back.sequence != got.sequence+1 || back.holder != got.holder || back.incarnation != got.incarnation ||
			back.grant <= got.grant || back.grant < back.sequence {
			t.Fatalf("%q is read as %+v, its successor as %+v, %v", raw, got, back, err)
		}
	})
}
