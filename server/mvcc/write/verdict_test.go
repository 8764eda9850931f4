package write

import (
	"context"
	"errors"
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

// A verdict that was reached with the users and roles before a change does not count as one of those after it.
func TestVerdictIsOfTheRolesThatItWasReachedWith(t *testing.T) {
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
		return l.p.Together(t.Context(), Request{As: permit, Command: NewTxnCommand(putLeased("a", 7))})[0]
	}
	require.ErrorIs(t, attach(), errUnpermitted)
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

// Requests share a verdict. If the caller of the one that reaches it leaves, the others are not cancelled.
func TestVerdictIsReachedThoughTheFirstCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &slow{Store: newStore(t)}
		l := lead(t, store)
		store.next = true
		permit := auth.NewPermit(func(ctx context.Context, at auth.View) error {
			return at.MayWriteLease(ctx, 7, "me", func([]byte) error { return nil })
		})
		reach := func(ctx context.Context) <-chan error {
			done := make(chan error, 1)
			go func() { done <- l.p.reachVerdicts(ctx, permit) }()
			synctest.Wait()
			return done
		}
		leaving, leave := context.WithCancel(t.Context())
		first, second := reach(leaving), reach(t.Context())
		leave()
		require.ErrorIs(t, <-first, context.Canceled)
		require.NoError(t, <-second)
	})
}
