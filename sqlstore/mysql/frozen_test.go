package mysql

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// TestServerEndsIdleWriters: the server ends a connection for writing that is idle, and soon, if it can, one that
// is in a transaction. It keeps connections for reading.
func TestServerEndsIdleWriters(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		db := openURL(t, p.Database(t), sqlstore.Options{}).Database()
		get := func(variable string) (writing, reading int) {
			require.NoError(t, db.Write().Get(&writing, "SELECT @@SESSION."+variable))
			require.NoError(t, db.Read().Get(&reading, "SELECT @@SESSION."+variable))
			return writing, reading
		}
		writing, reading := get("wait_timeout")
		require.EqualValues(t, idleWriter.Seconds(), writing)
		require.Greater(t, reading, writing)
		if variable := p.IdleTransaction(); variable != "" {
			writing, reading = get(variable)
			require.EqualValues(t, idleTransaction.Seconds(), writing)
			require.Zero(t, reading)
		}
	})
}

// TestFrozenTransactionEnds: the transaction of a process that is frozen does not keep another one from the fence row.
// On MySQL that takes idleWriter.
func TestFrozenTransactionEnds(t *testing.T) {
	t.Parallel()
	onServers(t, func(t *testing.T, p enginetest.Product) {
		if p.IdleTransaction() == "" {
			t.Skip("takes idleWriter")
		}
		frozenTransactionEnds(t, p.Database(t))
	})
}

func frozenTransactionEnds(t *testing.T, raw string) {
	faults := faultdriver.New()
	frozen := openURL(t, raw, sqlstore.Options{WrapConnector: faults.Wrap})
	createFence(t, frozen)
	other := openURL(t, raw, sqlstore.Options{})
	reached := make(chan struct{})
	faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
		if s.Kind != faultdriver.Commit {
			return faultdriver.Fault{}
		}
		close(reached)
		return faultdriver.Fault{Hang: true}
	})
	ctx, thaw := context.WithCancel(context.Background())
	defer thaw()
	ended := make(chan error, 1)
	go func() {
		b := frozen.BeginBatchWrite()
		b.CAS(coder.FenceKey(), fenceToken(2), fenceToken(1))
		b.Put([]byte("a row that needs a transaction"), []byte("x"))
		ended <- b.Commit(ctx)
	}()
	<-reached
	require.NoError(t, swapFence(context.Background(), other, 2))
	thaw()
	require.ErrorIs(t, <-ended, sqlstore.ErrUncertain)
}
