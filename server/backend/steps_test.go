package backend

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// lazy is a store whose commits, and looks at the chain row, take a while longer.
type lazy struct {
	sqlstore.Store
	commit, look time.Duration
}

type lazyBatch struct {
	sqlstore.BatchWrite
	s *lazy
}

func (s *lazy) BeginBatchWrite() sqlstore.BatchWrite { return &lazyBatch{s.Store.BeginBatchWrite(), s} }

func (b *lazyBatch) Commit(ctx context.Context) error {
	<-time.After(b.s.commit) // the time it takes is what is tested
	return b.BatchWrite.Commit(ctx)
}

func (s *lazy) Get(ctx context.Context, key []byte) ([]byte, error) {
	if string(key) == string(coder.ChainKey()) {
		<-time.After(s.look)
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

	store.look = slowConfirm + time.Millisecond
	b.leading.Load().lease.Expire()
	ctx, steps = mvcc.WithSteps(t.Context())
	before := slow()
	if _, err := b.Range(ctx, auth.System, &mvcc.RangeRequest{KeyRange: all()}, true); err != nil {
		t.Fatal(err)
	}
	if steps.Confirm < store.look || steps.Commit != 0 || steps.Queue != 0 {
		t.Errorf("a linearizable read: %+v", steps)
	}
	if n := slow() - before; n != 1 {
		t.Errorf("counted %v times as slow", n)
	}
	ctx, steps = mvcc.WithSteps(t.Context())
	if _, err := b.Range(ctx, auth.System, &mvcc.RangeRequest{KeyRange: all()}, false); err != nil {
		t.Fatal(err)
	}
	if *steps != (mvcc.Steps{}) || slow()-before != 1 {
		t.Errorf("a serializable read: %+v", steps)
	}
}
