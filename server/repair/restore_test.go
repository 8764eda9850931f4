package repair

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/history"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// delayed carries out the commit that completes a restore only when the next attempt arrives.
type delayed struct {
	table
	first *storetest.Batch
}

func (d *delayed) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(d.table.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		switch {
		case !b.Removes():
		case d.first == nil:
			d.first = b
			return sqlstore.ErrUncertain
		default:
			require.NoError(d.t, d.first.BatchWrite.Commit(ctx))
		}
		return b.BatchWrite.Commit(ctx)
	})
}

// TestRestoreIsCompleteThoughTheAnswerWasLost: a commit whose connection broke may take effect while the next
// attempt is made, which then conflicts with it.
func TestRestoreIsCompleteThoughTheAnswerWasLost(t *testing.T) {
	store := &delayed{table: newTable(t)}
	r, err := BeginRestore(t.Context(), store, -1)
	require.NoError(t, err)
	require.NoError(t, r.Put(t.Context(), &coder.Record{Key: []byte("k"), CreateRevision: 2, ModRevision: 2, Version: 1}))
	keys, revision, err := r.Finish(t.Context(), 2, nil)
	require.NoError(t, err)
	require.Equal(t, 1, keys)
	require.EqualValues(t, 2, revision)
	require.NoError(t, RefuseUnfinished(t.Context(), store))
	require.EqualValues(t, 2, store.token().Revision)
}

// TestRestoredRevisionsHaveTheTimeOfTheRestore: the file does not say when they were committed.
func TestRestoredRevisionsHaveTheTimeOfTheRestore(t *testing.T) {
	store := newTable(t)
	before := time.Now().Truncate(time.Millisecond)
	r, err := BeginRestore(t.Context(), store, -1)
	require.NoError(t, err)
	after := time.Now()
	for rev := int64(2); rev < 2+2*restoreGroup; rev++ {
		require.NoError(t, r.Put(t.Context(), &coder.Record{Key: []byte("k"), CreateRevision: 2, ModRevision: rev,
			Version: rev - 1}))
	}
	_, revision, err := r.Finish(t.Context(), 0, nil)
	require.NoError(t, err)
	log := history.New(store, func(context.Context) (int64, error) { return -1, nil })
	for _, rev := range []int64{2, 2 + restoreGroup, revision} {
		got, err := log.CommitOf(t.Context(), rev)
		require.NoError(t, err)
		require.False(t, got.At.Before(before) || got.At.After(after), "revision %d is of %s", rev, got.At)
	}
	got, err := log.RevisionAt(t.Context(), after, revision)
	require.NoError(t, err)
	require.Equal(t, revision, got)
}

func TestDiscardComparesTheToken(t *testing.T) {
	held := coder.FenceToken{Sequence: 7, Term: 2, Revision: 9}
	store := newTable(t)
	store.put(coder.FenceKey(), coder.EncodeFenceToken(held))
	for _, other := range []*coder.FenceToken{nil, {Sequence: 6, Term: 2, Revision: 9}} {
		require.ErrorIs(t, Discard(t.Context(), store, other), ErrFenceMoved)
	}
	require.NoError(t, Discard(t.Context(), store, &held))
	require.ErrorIs(t, RefuseUnfinished(t.Context(), store), ErrReverting)
	_, err := FindPrevious(t.Context(), store, false)
	require.ErrorIs(t, err, ErrReverting)
	p, err := FindPrevious(t.Context(), store, true)
	require.NoError(t, err)
	require.Equal(t, held.Revision, p.Revision)
	r, err := p.Begin(t.Context(), store, -1)
	require.NoError(t, err)
	_, _, err = r.Finish(t.Context(), 20, nil)
	require.NoError(t, err)
	require.NoError(t, RefuseUnfinished(t.Context(), store))
}
