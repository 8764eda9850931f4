package node

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// The leadership is handed over to a node that hangs before it takes the chain row. The lock
// expires and another node leads. Then the first one continues: it must take the chain row
// from the other one before it serves.
func TestSuccessorThatLostTheLockServesNoStaleReads(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), quick, 3)
	first := g.leader()
	late := g.others(first)[0]
	late.line.hold(coder.ChainKey())
	require.NoError(t, first.MoveLeader(t.Context(), late.id()))
	eventually.True(t, "the lock to be taken", late.locked.Load)
	late.freeze()
	others := g.others(late)
	putAnywhere(t, others, "k", "1")
	leads := leader(t, others)

	over := make(chan struct{})
	var reader sync.WaitGroup
	var mu sync.Mutex
	newest := "1"
	reader.Go(func() {
		for {
			select {
			case <-over:
				return
			default:
			}
			mu.Lock()
			want := newest
			mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), quick.lease)
			value, _, err := get(ctx, leads, "k", true)
			cancel()
			if err == nil && value < want {
				t.Errorf("read %q after %q was acknowledged", value, want)
				return
			}
		}
	})
	late.line.hold(coder.LockKey()) // it does not learn yet that the lock is another's
	eventually.True(t, "the late one to lead", late.Backend().Leading)
	if _, err := late.Backend().Txn(t.Context(), auth.System, put("k", "2"), true); err == nil { // else it was deposed already
		mu.Lock()
		newest = "2"
		mu.Unlock()
	}
	eventually.True(t, "its predecessor to find out", func() bool { return !leads.Backend().Leading() })
	close(over)
	reader.Wait()
}
