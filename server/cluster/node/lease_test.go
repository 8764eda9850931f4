package node

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// The leadership is handed over to a node that hangs before it takes the fence row. The lock
// expires and another node leads. Then the first one continues: it must take the fence row
// from the other one before it serves.
func TestSuccessorThatLostTheLockServesNoStaleReads(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), quick, 3)
	const attempts = 20
	for range attempts {
		if readWhileALateOneLeads(t, g) {
			return
		}
	}
	t.Errorf("no late one led in %d attempts", attempts)
}

// readWhileALateOneLeads reads at a leader while another member takes over from it that had the lock before. It returns
// false if that one did not lead: on a busy machine it may not get the lock, or may give up before it is let go on.
func readWhileALateOneLeads(t *testing.T, g *group) bool {
	t.Helper()
	first := g.leader()
	late := g.others(first)[0]
	others := g.others(late)
	defer late.thaw()
	late.line.hold(coder.FenceKey())
	if err := first.MoveLeader(t.Context(), late.id()); err != nil {
		t.Log(err)
		return false
	}
	eventually.True(t, "the lock to be taken", func() bool {
		return late.locked.Load() || slices.ContainsFunc(others, func(m *testNode) bool { return m.Replica().Leading() })
	})
	late.freeze()
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
			ctx, cancel := context.WithTimeout(t.Context(), 2*quick)
			value, _, err := get(ctx, leads, "k", true)
			cancel()
			if err == nil && value < want {
				t.Errorf("read %q after %q was acknowledged", value, want)
				return
			}
		}
	})
	defer reader.Wait()
	defer close(over)
	late.line.hold(coder.LockKey()) // it does not learn yet that the lock is another's
	eventually.True(t, "the late one to lead, or to give up",
		func() bool { return late.Replica().Leading() || !late.locked.Load() })
	if !late.Replica().Leading() {
		return false
	}
	// else it was deposed already
	if _, err := late.Replica().Txn(t.Context(), auth.System, put("k", "2"), true); err == nil {
		mu.Lock()
		newest = "2"
		mu.Unlock()
	}
	eventually.True(t, "its predecessor to find out", func() bool { return !leads.Replica().Leading() })
	return true
}
