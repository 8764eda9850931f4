package write

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
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
