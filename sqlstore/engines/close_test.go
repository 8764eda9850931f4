package engines_test

import (
	"context"
	"errors"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

func TestCloseEndsCallsUnderWay(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		b := openBroken(t, database)
		started := make(chan struct{}, 2)
		b.faults.Set(func(s faultdriver.Statement) faultdriver.Fault {
			if s.Kind != faultdriver.Query && s.Kind != faultdriver.Begin && s.Kind != faultdriver.Exec || setup(s) {
				return faultdriver.Fault{}
			}
			started <- struct{}{}
			return faultdriver.Fault{Hang: true, Cut: true}
		})
		ended := make(chan error, 2)
		go func() {
			_, err := b.store.Get(context.Background(), []byte("plain"))
			ended <- err
		}()
		go func() {
			w := b.store.BeginBatchWrite()
			w.Put([]byte("put"), []byte("x"))
			ended <- w.Commit(context.Background())
		}()
		for range 2 {
			<-started
		}
		if err := b.store.Close(); err != nil {
			t.Error(err)
		}
		for range 2 {
			if err := <-ended; !errors.Is(err, sqlstore.ErrClosed) {
				t.Errorf("a call under way: %v, want ErrClosed", err)
			}
		}
		if n := b.faults.Conns(); n != 0 {
			t.Errorf("%d connections are open after Close", n)
		}
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	raw := enginetest.Database(t)
	registry := prometheus.NewRegistry()
	for range 2 { // a closed store leaves the registry as it was
		s := openURL(t, raw, sqlstore.Options{Registerer: registry})
		b := s.BeginBatchWrite()
		b.Put([]byte("k"), []byte("v"))
		if err := b.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		b = s.BeginBatchWrite()
		b.PutIfNotExist([]byte("k"), []byte("v"))
		var c *sqlstore.Conflict
		if err := b.Commit(ctx); !errors.As(err, &c) {
			t.Fatal(err)
		}
		if _, err := s.Get(ctx, []byte("none")); !errors.Is(err, sqlstore.ErrKeyNotFound) {
			t.Fatal(err)
		}
		lo, hi := coder.IndexBounds([]byte("a"), nil)
		if _, _, err := s.List(ctx, sqlstore.ListQuery{Start: lo, End: hi}); err != nil {
			t.Fatal(err)
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		calls, failures, pools := map[string]uint64{}, map[string]float64{}, 0
		for _, f := range families {
			for _, m := range f.GetMetric() {
				labels := map[string]string{}
				for _, l := range m.GetLabel() {
					labels[l.GetName()] = l.GetValue()
				}
				switch f.GetName() {
				case "sqlbrain_sql_duration_seconds":
					calls[labels["statement"]] = m.GetHistogram().GetSampleCount()
				case "sqlbrain_sql_errors_total":
					failures[labels["statement"]+" "+labels["kind"]] = m.GetCounter().GetValue()
				case "go_sql_open_connections":
					pools++
				}
			}
		}
		for statement := range calls {
			if _, there := failures[statement+" unavailable"]; !there {
				t.Errorf("no counter of the errors of %s exists before the first one", statement)
			}
		}
		if calls["commit_tx"] != 1 || calls["commit_single"] != 1 || calls["get"] != 1 || calls["list"] != 1 ||
			failures["commit_single conflict"] != 1 || failures["get other"] != 0 || pools != 2 {
			t.Errorf("calls %v, failures %v, %d pools", calls, failures, pools)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := testutil.GatherAndCount(registry); err != nil || n != 0 {
			t.Errorf("%d metrics are left after Close, %v", n, err)
		}
	}
}
