package write

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

func putLeased(key string, lease int64) *mvcc.Txn {
	return &mvcc.Txn{Then: []mvcc.Op{{Put: &mvcc.PutRequest{Key: []byte(key), Value: []byte("v"), Lease: lease}}}}
}

var errDenied = errors.New("denied")

// A decision that was made with the users and roles before a change does not count as one of those after it.
func TestDecisionIsOfTheRolesThatItWasMadeWith(t *testing.T) {
	l := lead(t, newStore(t))
	l.leases[7] = coder.Lease{ID: 7, TTL: 60}
	l.must(t, putLeased("secret", 7))
	changed := auth.NewRows()
	changed.Version = 1
	permit := auth.NewPermit(func(ctx context.Context, at auth.View) error {
		rows := at.AuthRows()
		l.users = changed // as if a change were committed now
		return at.MayWriteLease(ctx, 7, "me", func([]byte) error {
			if rows.Version == changed.Version {
				return errDenied
			}
			return nil
		})
	})
	attach := func() error {
		return l.p.ExecuteBatch(t.Context(), Request{As: permit, Command: NewTxnCommand(putLeased("a", 7))})[0]
	}
	require.ErrorContains(t, attach(), "must be authorized first")
	require.ErrorIs(t, attach(), errDenied)
}

// slow is a store whose next iteration lasts until its caller leaves.
type slow struct {
	sqlstore.Store
	next bool
}

func (s *slow) Iter(ctx context.Context, r sqlstore.Range) iter.Seq2[sqlstore.Row, error] {
	if !s.next {
		return s.Store.Iter(ctx, r)
	}
	s.next = false
	return func(yield func(sqlstore.Row, error) bool) {
		<-ctx.Done()
		yield(sqlstore.Row{}, ctx.Err())
	}
}

// Requests share a decision. If the caller of the one that makes it leaves, the others are not cancelled.
func TestDecisionIsMadeThoughTheFirstCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: newStore(t)}
		l := lead(t, store)
		store.next = true
		permit := auth.NewPermit(func(ctx context.Context, at auth.View) error {
			return at.MayWriteLease(ctx, 7, "me", func([]byte) error { return nil })
		})
		authorize := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() {
				_, err := l.p.authorize(ctx, permit)
				done <- err
			}()
			synctest.Wait()
			return done
		}
		leaving, leave := context.WithCancel(t.Context())
		first, second := authorize(leaving), authorize(t.Context())
		leave()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-second)
	})
}

// A request is executed although it needs more decisions than are cached.
func TestRequestKeepsTheDecisionsThatItNeeds(t *testing.T) {
	l := lead(t, newStore(t))
	defer l.run(t.Context())()
	txn, checks := &mvcc.Txn{}, 0
	for id := int64(1); id <= decisionsKept+1; id++ {
		l.leases[id] = coder.Lease{ID: id, TTL: 60}
		txn.Then = append(txn.Then, putLeased(fmt.Sprint("key of ", id), id).Then...)
	}
	permit := auth.NewPermit(func(ctx context.Context, at auth.View) error {
		if checks++; checks > 100 {
			return errors.New("its decisions were evicted again and again")
		}
		for id := range l.leases {
			if err := at.MayWriteLease(ctx, id, "me", func([]byte) error { return nil }); err != nil {
				return err
			}
		}
		return nil
	})
	require.NoError(t, l.p.Submit(t.Context(), permit, NewTxnCommand(txn)))
	known := 0
	for id := range l.leases {
		known += l.p.Decisions(id)
	}
	require.Equal(t, decisionsKept, known)
}
