package write

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestAFailedCommandLeavesNothingBehind(t *testing.T) {
	l := lead(t, newStore(t))
	bad := NewTxnCommand(&mvcc.Txn{Then: []mvcc.Op{
		{Put: &mvcc.PutRequest{Key: []byte("a"), Value: []byte("1")}},
		{Put: &mvcc.PutRequest{Key: []byte("b"), Value: []byte("1"), Lease: 99}},
	}})
	good := NewTxnCommand(put("c", "1"))
	outcomes := l.together(t, bad, good)
	if !errors.Is(outcomes[0], mvcc.ErrLeaseNotFound) || outcomes[1] != nil {
		t.Fatalf("outcomes: %v", outcomes)
	}
	if good.Result().Revision != 2 || l.Revision() != 2 {
		t.Fatalf("the failed command took a revision: %d, %d", good.Result().Revision, l.Revision())
	}
	res, err := l.p.cfg.Reader.At(2).RangeAt(t.Context(), &mvcc.RangeRequest{KeyRange: all()})
	if err != nil || res.Count != 1 {
		t.Fatalf("the table holds %+v, %v", res, err)
	}
}

// A client may ask for a revision that is being made in the same batch.
func TestARevisionOfTheSameBatchWaitsForTheNext(t *testing.T) {
	l := lead(t, newStore(t))
	ask := NewTxnCommand(&mvcc.Txn{Then: []mvcc.Op{
		{Range: &mvcc.RangeRequest{KeyRange: all(), Revision: 2}},
		{Put: &mvcc.PutRequest{Key: []byte("c"), Value: []byte("1")}},
	}})
	outcomes := l.together(t, NewTxnCommand(put("a", "1")), NewTxnCommand(put("b", "1")), ask)
	if err := errors.Join(outcomes...); err != nil {
		t.Fatal(err)
	}
	if r := ask.Result().Results[0].Range; r.Count != 1 || r.Revision != 3 {
		t.Fatalf("revision 2 reads %+v", r)
	}
	future := NewTxnCommand(&mvcc.Txn{Then: []mvcc.Op{{Range: &mvcc.RangeRequest{KeyRange: all(), Revision: 5}},
		{Put: &mvcc.PutRequest{Key: []byte("d")}}}})
	if err := l.together(t, future)[0]; !errors.Is(err, mvcc.ErrFutureRevision) {
		t.Fatalf("revision 5 of 4: %v", err)
	}
}

// narrow is a store that takes no batch above a size.
type narrow struct {
	sqlstore.Store
	bytes int
}

func (n *narrow) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(n.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if b.Size() > n.bytes {
			return fmt.Errorf("%w: made up", sqlstore.ErrTooLarge)
		}
		return b.BatchWrite.Commit(ctx)
	})
}

func TestARequestTooLargeFailsAlone(t *testing.T) {
	l := lead(t, &narrow{Store: newStore(t), bytes: 2000})
	outcomes := l.together(t,
		NewTxnCommand(put("a", "1")), NewTxnCommand(put("b", string(make([]byte, 3000)))), NewTxnCommand(put("c", "1")))
	if outcomes[0] != nil || !errors.Is(outcomes[1], mvcc.ErrTooLarge) || outcomes[2] != nil || l.Revision() != 3 {
		t.Fatalf("outcomes %v, revision %d", outcomes, l.Revision())
	}
}

// losing is a store that refuses the first commit as too large, and finds in the second one, which it makes, that a row
// is missing.
type losing struct {
	sqlstore.Store
	on      bool
	commits int // since it is on
}

func (s *losing) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		if s.on {
			s.commits++
		}
		if s.commits == 1 {
			return fmt.Errorf("%w: made up", sqlstore.ErrTooLarge)
		}
		if err := b.BatchWrite.Commit(ctx); err != nil || s.commits != 2 {
			return err
		}
		return fmt.Errorf("%w: made up", sqlstore.ErrRowMissing)
	})
}

// TestNothingIsCommittedAfterTheLeadershipEnded, not even when the requests of a batch are committed one by one: the
// fence row would seem to say that the next one was.
func TestNothingIsCommittedAfterTheLeadershipEnded(t *testing.T) {
	store := &losing{Store: newStore(t)}
	l := lead(t, store)
	l.must(t, put("a", "0"), put("b", "0"))
	store.on = true
	outcomes := l.together(t, NewTxnCommand(put("a", "1")), NewTxnCommand(put("b", "1")))
	require.Error(t, l.reason)
	require.Error(t, outcomes[0])
	require.ErrorIs(t, outcomes[1], mvcc.ErrNotLeader)
}
