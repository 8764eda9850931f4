package status

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
)

// databaseNode is a node that leads, with a database that may hang or refuse writes.
type databaseNode struct {
	Node
	mu           sync.Mutex
	linearizable []bool // of its reads
	hangs        bool
	refuses      error
}

func (n *databaseNode) Status() replica.Status { return replica.Status{Leader: 1} }
func (n *databaseNode) All() []quota.Alarm     { return nil }
func (n *databaseNode) Stopped() error         { return nil }
func (n *databaseNode) Fed() error             { return nil }

func (n *databaseNode) Range(_ context.Context, _ auth.Permit, _ *mvcc.RangeRequest,
	linearizable bool) (*mvcc.RangeResult, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.linearizable = append(n.linearizable, linearizable)
	return &mvcc.RangeResult{}, nil
}

func (n *databaseNode) Writable(ctx context.Context) error {
	n.mu.Lock()
	hangs, refuses := n.hangs, n.refuses
	n.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return ctx.Err()
	}
	return refuses
}

// set changes what becomes of writes from now on.
func (n *databaseNode) set(hangs bool, refuses error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.hangs, n.refuses = hangs, refuses
}

func newDatabaseHealth(n *databaseNode, r prometheus.Registerer) *Health {
	answer := func(_ context.Context, _ *slog.Logger, _ string, err error) error { return err }
	return NewHealth(HealthConfig{Node: n, Reader: n, Alarms: n, Probe: n, Log: slog.New(slog.DiscardHandler),
		Timeout: time.Hour, Answer: answer}, r)
}

func TestHealthReadsWithTheRequestedConsistency(t *testing.T) {
	for path, linearizable := range map[string]bool{
		"/health": true, "/health?serializable=true": false, "/livez": false,
		"/readyz/serializable_read": false, "/readyz/linearizable_read": true,
	} {
		n, mux := &databaseNode{}, http.NewServeMux()
		newDatabaseHealth(n, prometheus.NewRegistry()).register(mux)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		require.Equal(t, 200, w.Code)
		require.Equal(t, []bool{linearizable}, n.linearizable, path)
	}
}

// checked returns the gauges of the checks of /readyz.
func checked(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	results := make(map[string]float64)
	for _, f := range families {
		if f.GetName() != "etcd_server_healthcheck" {
			continue
		}
		for _, m := range f.GetMetric() {
			require.Equal(t, readiness, m.GetLabel()[1].GetValue())
			results[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return results
}

// Alerts go by the metrics of the checks. They must be current although no probe asks, and although the database hangs.
func TestReadinessIsCheckedWithoutProbes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, registry := &databaseNode{}, prometheus.NewRegistry()
		h := newDatabaseHealth(n, registry)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			h.Run(ctx)
		}()
		synctest.Wait()
		good := map[string]float64{
			"data_corruption": 1, "non_learner": 1, "serving": 1, "leader": 1, "watch_feed": 1, "database": 1,
		}
		require.Equal(t, good, checked(t, registry), "at once")
		require.Empty(t, n.linearizable, "an idle node does not read the table for it")

		for what, fails := range map[string]func(){
			"refuses": func() { n.set(false, errors.New("refused")) },
			"hangs":   func() { n.set(true, nil) },
		} {
			fails()
			time.Sleep(2*selfCheck + time.Millisecond) // the pause, and what a check may take
			synctest.Wait()
			results := checked(t, registry)
			require.Zero(t, results["database"], what)
			require.Equal(t, 1.0, results["leader"], what)
			n.set(false, nil)
			time.Sleep(2*selfCheck + time.Millisecond)
			synctest.Wait()
			require.Equal(t, good, checked(t, registry), what)
		}

		n.set(true, nil)
		time.Sleep(selfCheck + time.Millisecond)
		stop()
		<-ended
		require.Equal(t, good, checked(t, registry), "a check that the end of the process cut says nothing")
	})
}
