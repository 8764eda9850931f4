package replica

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/repair"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
	"github.com/sqlbrain/sqlbrain/watch"
)

func mustRestore(t *testing.T, store sqlstore.Store, compacted int64) *repair.Restore {
	t.Helper()
	r, err := repair.BeginRestore(t.Context(), store, compacted)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func mustPut(t *testing.T, r *repair.Restore, recs ...*coder.Record) {
	t.Helper()
	for _, rec := range recs {
		if err := r.Put(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
	}
}

func version(key string, rev int64) *coder.Record {
	return &coder.Record{Key: []byte(key), Value: []byte("v"), CreateRevision: rev, ModRevision: rev, Version: 1}
}

func refused(t *testing.T, store sqlstore.Store) {
	t.Helper()
	if _, err := OpenLeader(t.Context(), store, exclusive(t)); !errors.Is(err, repair.ErrRestoring) {
		t.Errorf("a table that is half restored: %v", err)
	}
}

func TestInterruptedRestoreStartsOver(t *testing.T) {
	store := newStore(t)
	r := mustRestore(t, store, 0)
	refused(t, store)
	if err := r.Lease(t.Context(), coder.Lease{ID: 5, TTL: 5}); err != nil {
		t.Fatal(err)
	}
	for i := range 10_000 { // more than one commit takes
		mustPut(t, r, version(fmt.Sprintf("left%d", i), int64(2+i)))
	}
	if _, err := store.Get(t.Context(), coder.EncodeLeaseKey(5)); err != nil {
		t.Fatal("nothing was written yet:", err)
	}
	refused(t, store)
	again := mustRestore(t, store, 0)
	mustPut(t, again, version("a", 2), version("b", 3))
	keys, rev, err := again.Finish(t.Context(), 0, nil)
	if err != nil || keys != 2 || rev != 3 {
		t.Fatal(keys, rev, err)
	}
	b := open(t, store, nil)
	got := mustRange(t, b, &mvcc.RangeRequest{KeyRange: all()})
	if len(got.Records) != 2 || got.Revision != 3 || string(got.Records[0].Key) != "a" {
		t.Errorf("%+v", got)
	}
	if ids, err := lessor(t, b).IDs(t.Context(), auth.System); err != nil || len(ids) != 0 {
		t.Error(ids, err)
	}
	if _, err := repair.BeginRestore(t.Context(), store, 0); !errors.Is(err, repair.ErrNotEmpty) {
		t.Error(err)
	}
}

// A server that was opened on the empty table before the restore began must not take
// it for its own.
func TestServerOpenedBeforeRestoreDoesNotLead(t *testing.T) {
	store := newStore(t)
	b := openFollower(t, store, exclusive(t))
	if _, err := repair.BeginRestore(t.Context(), store, 0); !errors.Is(err, repair.ErrNotEmpty) {
		t.Fatal(err) // its identity is there
	}
	marked := store.BeginBatchWrite()
	marked.Put(coder.FenceKey(), coder.EncodeFenceToken(coder.FenceToken{Sequence: 1}))
	marked.Put(coder.JobKey(), coder.EncodeJob(coder.NewJob(coder.JobRestore)))
	if err := marked.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	leading, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := b.Lead(leading, func(int64) { cancel() }); !errors.Is(err, repair.ErrRestoring) {
		t.Error(err)
	}
	// The restore ends all the same, on the fence row that the server has changed.
	if _, _, err := mustRestore(t, store, 0).Finish(t.Context(), 9, nil); err != nil {
		t.Fatal(err)
	}
	if got := open(t, store, nil).Revision(); got != 9 {
		t.Error(got)
	}
}

// failing does not know what became of every other commit.
type failing struct {
	sqlstore.Store
	commits int
}

func (s *failing) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		err := b.BatchWrite.Commit(ctx)
		if s.commits++; err == nil && s.commits%2 == 1 {
			return fmt.Errorf("the connection is gone: %w", sqlstore.ErrUncertain)
		}
		return err
	})
}

func TestRestoreOverUnreliableConnection(t *testing.T) {
	store := &failing{Store: newStore(t)}
	r := mustRestore(t, store, 0)
	mustPut(t, r, version("a", 2), version("b", 3))
	if _, rev, err := r.Finish(t.Context(), 0, nil); err != nil || rev != 3 {
		t.Fatal(rev, err)
	}
	if store.commits < 4 {
		t.Fatalf("%d commits", store.commits)
	}
	b := open(t, store.Store, nil)
	if got := mustRange(t, b, &mvcc.RangeRequest{KeyRange: all()}); len(got.Records) != 2 {
		t.Errorf("%+v", got)
	}
}

// A damaged file may lack the version between two deletions. The log still has both.
func TestRestoreOfTwoDeletionsInARow(t *testing.T) {
	store := newStore(t)
	r := mustRestore(t, store, -1)
	mustPut(t, r, version("k", 2), &coder.Record{Key: []byte("k"), ModRevision: 3, Tombstone: true},
		&coder.Record{Key: []byte("k"), ModRevision: 4, Tombstone: true}, version("k", 5))
	if _, _, err := r.Finish(t.Context(), 5, nil); err != nil {
		t.Fatal(err)
	}
	b := open(t, store, nil)
	events, _, err := b.history.Changes(t.Context(), []byte("k"), nil, 2, 5, 1<<20)
	if err != nil || len(events) != 4 || events[1].Type != watch.Delete || events[2].Type != watch.Delete {
		t.Fatal(events, err)
	}
	mustTxn(t, b, del("k"))
	checkTable(t, b, store, newReference())
}
