package replica

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// TestAFollowerNeedNotCheckWhatAnotherStatementHasRead: PiggybackRead reports that nothing has changed since the last
// RefreshState. It does not if there is anything that RefreshState would find.
func TestAFollowerNeedNotCheckWhatAnotherStatementHasRead(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, store sqlstore.Store, lead, f *Replica){
		"nothing": nil,
		"a write": func(t *testing.T, _ sqlstore.Store, lead, _ *Replica) { mustTxn(t, lead, put("k", "2")) },
		"an alarm": func(t *testing.T, _ sqlstore.Store, lead, _ *Replica) {
			_, err := lead.Alarms.Raise(t.Context(), auth.System, quota.Alarm{MemberID: 1, Type: quota.AlarmCorrupt})
			require.NoError(t, err)
		},
		"a user": func(t *testing.T, _ sqlstore.Store, lead, _ *Replica) { mustChange(t, lead, setUser("a", "1")) },
		"a loss that this member sees": func(t *testing.T, _ sqlstore.Store, _, f *Replica) {
			seen := f.seen.Token()
			seen.Sequence++
			f.seen.Observe(seen)
		},
		"a loss that another member has seen": func(t *testing.T, store sqlstore.Store, _, f *Replica) {
			seen := f.seen.Token()
			putRow(t, store, coder.DataLossKey(), coder.EncodeDataLoss(coder.DataLoss{Sequence: seen.Sequence + 1,
				Term: seen.Term, Revision: seen.Revision, Member: 1}))
		},
		"the fence row is gone": func(t *testing.T, store sqlstore.Store, _, _ *Replica) {
			row := store.BeginBatchWrite()
			row.Del(coder.FenceKey())
			require.NoError(t, row.Commit(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore(t)
			_, lead, f := newLedPair(t, store)
			keys, _ := f.PiggybackRead(nil)
			require.Nil(t, keys, "there is no RefreshState to compare with")
			mustTxn(t, lead, put("k", "1"))
			mustCatchUp(t, f)
			for range 2 {
				if change != nil {
					change(t, store, lead, f)
				}
				unchanged := false
				keys, found := f.PiggybackRead(func() { unchanged = true })
				rows, err := store.MultiGet(t.Context(), keys)
				require.NoError(t, err)
				found(rows)
				require.Equal(t, change == nil, unchanged)
			}
		})
	}
}
