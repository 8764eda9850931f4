package replica

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// lazy is a store whose reads of the fence row take a while longer.
type lazy struct {
	sqlstore.Store
	look atomic.Int64 // time.Duration
}

func (s *lazy) Get(ctx context.Context, key []byte) ([]byte, error) {
	if string(key) == string(coder.FenceKey()) {
		<-time.After(time.Duration(s.look.Load())) // the time it takes is what is tested
	}
	return s.Store.Get(ctx, key)
}

func TestSlowReadsOfTheFenceRowAreCounted(t *testing.T) {
	store := &lazy{Store: newStore(t)}
	b := open(t, store, sharedStore)
	// The leader looks by itself every second. What it finds may spare the read a part of its own look.
	store.look.Store(int64(slowConfirm + time.Millisecond))
	eventually.True(t, "a read to look for all of the time", func() bool {
		before := testutil.ToFloat64(b.metrics.slowConfirms)
		b.leading.Load().lease.Expire()
		ctx, steps := mvcc.WithSteps(t.Context())
		if _, err := b.Reader.Range(ctx, auth.System, &mvcc.RangeRequest{KeyRange: all()}, true); err != nil {
			t.Fatal(err)
		}
		return steps.Confirm > slowConfirm && testutil.ToFloat64(b.metrics.slowConfirms) == before+1
	})
}
