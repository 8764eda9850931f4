package backend

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("refused")

func refuse(context.Context, AuthView) error { return errRefused }

// historyOf describes the versions of a key, newest first, read by pages.
func historyOf(t *testing.T, b *Backend, key string, limit, maxBytes int) (out []string) {
	t.Helper()
	q := &KeyHistoryRequest{Key: []byte(key), Limit: limit, MaxBytes: maxBytes}
	for {
		res, err := b.KeyHistory(t.Context(), q)
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

func TestKeyHistoryHasWhatIsNotCompacted(t *testing.T) {
	b := open(t, newStore(t), nil)
	ctx := t.Context()
	do := func(txn *Txn) int64 {
		res, err := b.Txn(ctx, txn, true)
		require.NoError(t, err)
		return res.Revision
	}
	do(put("k", "one"))   // 2
	do(put("kk", "x"))    // 3
	do(put("k", "two"))   // 4
	do(del("k"))          // 5
	do(put("k", "three")) // 6
	do(put("k", "four"))  // 7
	do(put("j", "x"))     // 8

	all := []string{"7 four", "6 three", "5 deleted", "4 two", "2 one"}
	for _, limit := range []int{1, 2, 5, 100} {
		require.Equal(t, all, historyOf(t, b, "k", limit, 1<<20), "pages of %d", limit)
	}
	require.Equal(t, all, historyOf(t, b, "k", 100, 0), "one by one: the bytes are used up at once")
	require.Empty(t, historyOf(t, b, "none", 10, 1<<20))

	compact := func(rev int64) {
		_, err := b.Compact(ctx, rev, true)
		require.NoError(t, err)
	}
	compact(4)
	require.Equal(t, all[:4], historyOf(t, b, "k", 2, 1<<20), "what was current at the compact revision is there")
	compact(5)
	require.Equal(t, all[:2], historyOf(t, b, "k", 2, 1<<20), "nothing was current")
	compact(8)
	require.Equal(t, all[:1], historyOf(t, b, "k", 2, 1<<20))
}

// Rows that compaction has yet to remove are not shown.
func TestKeyHistoryStopsAtTheCompactRevision(t *testing.T) {
	b := open(t, newStore(t), nil)
	for _, v := range []string{"one", "two", "three"} {
		_, err := b.Txn(t.Context(), put("k", v), true)
		require.NoError(t, err)
	}
	versions, err := b.versionsOf(t.Context(), &KeyHistoryRequest{Key: []byte("k"), Limit: 10, MaxBytes: 1 << 20}, 4)
	require.NoError(t, err)
	require.Len(t, versions, 3)
	q := &KeyHistoryRequest{Limit: 10, MaxBytes: 1 << 20}
	for mark, want := range map[int64]int{-1: 3, 2: 3, 3: 2, 4: 1} {
		page, more := q.page(versions, mark)
		require.Len(t, page, want, "compact revision %d", mark)
		require.False(t, more)
	}
}
