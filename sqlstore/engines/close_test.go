package engines_test

import (
	"context"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

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
		require.NoError(t, b.store.Close())
		for range 2 {
			require.ErrorIs(t, <-ended, sqlstore.ErrClosed, "a call under way")
		}
		require.Zero(t, b.faults.Conns(), "after Close")
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
		require.NoError(t, b.Commit(ctx))
		b = s.BeginBatchWrite()
		b.PutIfNotExist([]byte("k"), []byte("v"))
		require.True(t, sqlstore.IsConflict(b.Commit(ctx)))
		_, err := s.Get(ctx, []byte("none"))
		require.ErrorIs(t, err, sqlstore.ErrKeyNotFound)
		lo, hi := coder.IndexBounds([]byte("a"), nil)
		_, _, err = s.List(ctx, sqlstore.ListQuery{Start: lo, End: hi})
		require.NoError(t, err)
		families, err := registry.Gather()
		require.NoError(t, err)
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
			require.Contains(t, failures, statement+" unavailable", "before the first error")
		}
		if calls["commit_tx"] != 1 || calls["commit_single"] != 1 || calls["get"] != 1 || calls["list"] != 1 ||
			failures["commit_single conflict"] != 1 || failures["get other"] != 0 || pools != 2 {
			t.Errorf("calls %v, failures %v, %d pools", calls, failures, pools)
		}
		require.NoError(t, s.Close())
		left, err := testutil.GatherAndCount(registry)
		require.NoError(t, err)
		require.Zero(t, left, "after Close")
	}
}
