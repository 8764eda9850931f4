package replica

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

// lazy is a store whose commits, and looks at the fence row, take a while longer.
type lazy struct {
	sqlstore.Store
	commit time.Duration
	look   atomic.Int64 // time.Duration
}

func (s *lazy) BeginBatchWrite() sqlstore.BatchWrite {
	return storetest.OnCommit(s.Store.BeginBatchWrite(), func(ctx context.Context, b *storetest.Batch) error {
		<-time.After(s.commit) // the time it takes is what is tested
		return b.BatchWrite.Commit(ctx)
	})
}

func (s *lazy) Get(ctx context.Context, key []byte) ([]byte, error) {
	if string(key) == string(coder.FenceKey()) {
		<-time.After(time.Duration(s.look.Load()))
	}
	return s.Store.Get(ctx, key)
}

func TestStepsOfRequestsAreMeasured(t *testing.T) {
	store, registry := &lazy{Store: newStore(t), commit: 20 * time.Millisecond}, prometheus.NewRegistry()
	b := open(t, store, func(c *Config) { c.Exclusive, c.Registerer = false, registry })
	slow := func() float64 { return testutil.ToFloat64(b.metrics.slowConfirms) }

	ctx, steps := mvcc.WithSteps(t.Context())
	if _, err := b.Txn(ctx, auth.System, put("k", "v"), true); err != nil {
		t.Fatal(err)
	}
	if steps.Commit < store.commit || steps.Queue <= 0 || steps.Evaluate <= 0 || steps.Confirm != 0 || steps.Forward != 0 {
		t.Errorf("a put: %+v", steps)
	}

	// The leader looks by itself every second. What it finds may spare the read a part of its own look.
	store.look.Store(int64(slowConfirm + time.Millisecond))
	before := slow()
	eventually.True(t, "a read to look for all of the time", func() bool {
		before = slow()
		b.leading.Load().lease.Expire()
		ctx, steps = mvcc.WithSteps(t.Context())
		if _, err := b.Reader.Range(ctx, auth.System, &mvcc.RangeRequest{KeyRange: all()}, true); err != nil {
			t.Fatal(err)
		}
		if steps.Commit != 0 || steps.Queue != 0 {
			t.Fatalf("a linearizable read: %+v", steps)
		}
		return steps.Confirm > slowConfirm
	})
	if n := slow() - before; n != 1 {
		t.Errorf("counted %v times as slow", n)
	}
	ctx, steps = mvcc.WithSteps(t.Context())
	if _, err := b.Reader.Range(ctx, auth.System, &mvcc.RangeRequest{KeyRange: all()}, false); err != nil {
		t.Fatal(err)
	}
	if *steps != (mvcc.Steps{}) || slow()-before != 1 {
		t.Errorf("a serializable read: %+v", steps)
	}
}
