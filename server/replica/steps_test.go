package replica

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestSlowReadsOfTheFenceRowAreCounted(t *testing.T) {
	var takes atomic.Int64 // time.Duration
	store := &beforeFence{Store: newStore(t), do: func() { <-time.After(time.Duration(takes.Load())) }}
	b := open(t, store, sharedStore)
	// The leader looks by itself every second. What it finds may spare the read a part of its own look.
	takes.Store(int64(slowConfirm + time.Millisecond))
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
