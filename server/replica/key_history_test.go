package replica

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// historyOf describes the versions of a key, newest first, read by pages.
func historyOf(t *testing.T, b *Replica, key string, limit, maxBytes int) (out []string) {
	t.Helper()
	q := &read.KeyHistoryRequest{Key: []byte(key), Limit: limit, MaxBytes: maxBytes}
	for {
		res, err := b.Reader.KeyHistory(t.Context(), auth.System, q)
		require.NoError(t, err)
		require.LessOrEqual(t, len(res.Versions), limit)
		for _, v := range res.Versions {
			what := fmt.Sprintf("%d %s", v.ModRevision, v.Value)
			if v.Tombstone {
				what = fmt.Sprintf("%d deleted", v.ModRevision)
			}
			require.Less(t, len(out), 100, "the pages go on for ever")
			out = append(out, what)
			q.Before = v.ModRevision
		}
		if !res.More {
			return out
		}
		require.NotEmpty(t, res.Versions)
	}
}

func TestKeyHistoryListsUncompactedVersions(t *testing.T) {
	b := open(t, newStore(t), nil)
	mustTxn(t, b, put("k", "one"))   // 2
	mustTxn(t, b, put("kk", "x"))    // 3
	mustTxn(t, b, put("k", "two"))   // 4
	mustTxn(t, b, del("k"))          // 5
	mustTxn(t, b, put("k", "three")) // 6
	mustTxn(t, b, put("k", "four"))  // 7
	mustTxn(t, b, put("j", "x"))     // 8

	all := []string{"7 four", "6 three", "5 deleted", "4 two", "2 one"}
	for _, limit := range []int{1, 2, 5, 100} {
		require.Equal(t, all, historyOf(t, b, "k", limit, 1<<20), "pages of %d", limit)
	}
	require.Equal(t, all, historyOf(t, b, "k", 100, 0), "one by one: the bytes are used up at once")
	require.Empty(t, historyOf(t, b, "none", 10, 1<<20))

	mustCompact(t, b, 4, true)
	require.Equal(t, all[:4], historyOf(t, b, "k", 2, 1<<20), "what was current at the compact revision is there")
	mustCompact(t, b, 5, true)
	require.Equal(t, all[:2], historyOf(t, b, "k", 2, 1<<20), "nothing was current")
	mustCompact(t, b, 8, true)
	require.Equal(t, all[:1], historyOf(t, b, "k", 2, 1<<20))
}

// A deleted key may be created again after its index row was read: then its tombstone has a version row too.
func TestKeyHistoryOfAKeyThatIsCreatedAgain(t *testing.T) {
	store := &turning{Store: newStore(t)}
	b := open(t, store, nil)
	mustTxn(t, b, put("a", "1")) // revision 2
	mustTxn(t, b, del("a"))
	store.between = func(int) {
		store.between = nil
		mustTxn(t, b, put("a", "2"))
	}
	q := &read.KeyHistoryRequest{Key: []byte("a"), Limit: 9, MaxBytes: 99}
	got, err := b.Reader.KeyHistory(t.Context(), auth.System, q)
	require.NoError(t, err)
	var revisions []int64
	for _, rec := range got.Versions {
		revisions = append(revisions, rec.ModRevision)
	}
	require.Equal(t, []int64{3, 2}, revisions)
}
