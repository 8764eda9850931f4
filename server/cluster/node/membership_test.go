package node

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// A leader that was removed from the cluster stops serving, and another node leads.
func TestRemovedMemberStopsServing(t *testing.T) {
	t.Parallel()
	g := newGroup(t, newMemory(t), slow, 3)
	old := g.leader()
	rest := g.others(old)
	mustPut(t, old, "k", "1")
	// It must be known that somebody is left: the members have to have been seen.
	eventually.True(t, "the removal to be allowed", func() bool {
		_, err := rest[0].Members().Remove(t.Context(), old.id())
		return err == nil
	})
	began := time.Now()
	eventually.True(t, "the removed member to stop", func() bool {
		return errors.Is(old.Replica().Status().NotServing, member.ErrRemoved)
	})
	report(t, "a removed leader found out", began)
	young := leader(t, rest)
	report(t, "another one leads", began)
	mustPut(t, young, "k", "2")
	_, _, err := get(t.Context(), old, "k", false)
	require.ErrorIs(t, err, mvcc.ErrNotServing)
	_, err = old.Replica().Txn(t.Context(), auth.System, put("k", "3"), true)
	require.ErrorIs(t, err, mvcc.ErrNotServing)
	for _, m := range rest {
		requireGet(t, m, "k", "2")
	}
}
