package replica

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
	"github.com/sqlbrain/sqlbrain/watch"
)

// A watcher that gets an event can read its revision, and what a command does on its commit, such as
// ending a lease, comes before that.
func TestEventsArePublishedOnceTheirRevisionCanBeRead(t *testing.T) {
	b := openFollower(t, newStore(t), exclusive(t))
	rec := &coder.Record{Key: []byte("k"), Value: []byte("v"), CreateRevision: 2, ModRevision: 2, Version: 1}
	called := false
	require.NoError(t, b.publish([]*watch.Event{{Record: rec}}, 2, func() {
		called = true
		require.EqualValues(t, 1, b.Revision(), "the revision can be read already")
		got, known := b.view.Get([]byte("k"), 2, true)
		require.True(t, known, "the key space in memory does not have the revision that can be read")
		require.Equal(t, rec, got)
		require.EqualValues(t, 1, b.Hub.Revision(), "the events are published already")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, b.AwaitApplied(ended, Update{Revision: 2}), context.Canceled)
	}))
	require.True(t, called)
	require.EqualValues(t, 2, b.Hub.Revision())
	require.EqualValues(t, 2, b.Revision())
}

// watched is a store that calls committing before each commit.
type watched struct {
	sqlstore.Store
	committing atomic.Pointer[func()]
}

func (s *watched) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if f := s.committing.Load(); f != nil {
			(*f)()
		}
		return b.BatchWrite.Commit(ctx)
	})
}

// The successor of a leader that has recorded that it stopped does not wait for its read lease.
func TestReadLeaseEndsBeforeTheResignationIsRecorded(t *testing.T) {
	store := &watched{Store: newStore(t)}
	p := newPair(t, store)
	p.lead(0)
	mustTxn(t, p.nodes[0], put("k", "1"))
	l := p.nodes[0].leading.Load()
	require.True(t, l.lease.Valid())
	var ended atomic.Bool // at the last commit, which is that of the resignation
	f := func() { ended.Store(l.lease.Ended()) }
	store.committing.Store(&f)
	p.mustResign(0)
	require.True(t, ended.Load(), "the leader could still answer from memory")
	token, err := store.Get(t.Context(), coder.FenceKey())
	require.NoError(t, err)
	resigned, err := coder.DecodeFenceToken(token)
	require.NoError(t, err)
	require.True(t, resigned.IsResigned())
}

// Without a read lease another node may lead, and may have compacted.
func TestLeaderWithoutReadLeaseReadsTheCompactionMark(t *testing.T) {
	store := newStore(t)
	var calls atomic.Int64
	b := open(t, store, func(c *Config) {
		c.Exclusive = false
		c.FenceClock = func() time.Duration { return time.Duration(calls.Add(1)) * time.Hour } // no lease is ever valid
	})
	for _, v := range []string{"1", "2", "3"} {
		mustTxn(t, b, put("k", v))
	}
	putRow(t, store, coder.CompactKey(), coder.EncodeInt64(3))
	mark, err := b.Mark(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 3, mark)
}

// A node that starts shows the newest revision in the table, also after a compaction.
func TestReplicaOpensAtTheNewestRevision(t *testing.T) {
	store := newStore(t)
	b := open(t, store, nil)
	for _, v := range []string{"1", "2", "3"} {
		mustTxn(t, b, put("k", v))
	}
	mustCompact(t, b, 3, false)
	young := openFollower(t, store, exclusive(t))
	require.EqualValues(t, 4, young.Revision())
	require.EqualValues(t, 3, young.CompactRevision())
}
