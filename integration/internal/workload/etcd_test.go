package workload

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/retry"
)

func TestMain(m *testing.M) { harness.TestMain(m) }

// startEtcd runs a fresh etcd until the test ends and returns its endpoint.
func startEtcd(t *testing.T) string {
	t.Helper()
	return harness.StartEtcd(t, "--unsafe-no-fsync").Endpoint()
}

func small(workload, endpoint string) Config {
	c := DefaultConfig()
	c.Endpoints, c.Workload, c.Prefix = []string{endpoint}, workload, "/registry/"+workload
	c.Clients, c.Total, c.Keys, c.PageSize = 8, 300, 300, 50
	c.RequestTimeout, c.RetryFor = 2*time.Minute, eventually.Deadline // however busy the machine is
	return c
}

func TestAllWorkloadsVerifyAgainstEtcd(t *testing.T) {
	endpoint := startEtcd(t)
	for _, w := range Workloads {
		t.Run(w.Name, func(t *testing.T) {
			rep, err := Run(t.Context(), small(w.Name, endpoint))
			require.NoError(t, err)
			ok, failed := rep.Requests()
			require.NotZero(t, ok)
			require.Zero(t, failed, "%+v", rep.Phases)
			require.NotZero(t, rep.Verification.Answers)
			require.Zero(t, rep.Verification.Skipped)
			if w.Name == "watch-latency" || w.Name == "churn" {
				var written, seen int64
				for _, p := range rep.Phases {
					for _, o := range p.Ops {
						switch {
						case o.Name == "event":
							seen += o.Succeeded
						case p.Name != "load" && (o.Name == "create" || o.Name == "update"):
							written += o.Succeeded
						}
					}
				}
				require.Equal(t, written*int64(DefaultConfig().Watchers), seen, "%+v", rep.Phases)
			}
		})
	}
}

func TestPrefixInUseIsRefusedAndKept(t *testing.T) {
	endpoint := startEtcd(t)
	c := harness.ClientOf(t, endpoint)
	_, err := c.Put(t.Context(), "/registry/pods/default/mine", "x")
	require.NoError(t, err)
	cfg := small("create", endpoint)
	cfg.Prefix = "/registry"
	_, err = Run(t.Context(), cfg)
	require.ErrorIs(t, err, ErrPrefixInUse)
	got, err := c.Get(t.Context(), "/registry", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, got.Kvs, 1)
}

func TestRunEndsWhenTheServerIsGone(t *testing.T) {
	n := harness.StartEtcd(t, "--unsafe-no-fsync")
	cfg := small("get", n.Endpoint())
	cfg.Duration, cfg.Total = time.Hour, 0
	// A busy server may need a second for an answer.
	cfg.RetryFor, cfg.RequestTimeout = 500*time.Millisecond, 5*time.Second
	var rep *Report
	var err error
	var running sync.WaitGroup
	running.Go(func() { rep, err = Run(t.Context(), cfg) })
	c := harness.ClientOf(t, n.Endpoint())
	eventually.True(t, "an object", func() bool {
		got, err := c.Get(t.Context(), cfg.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
		return err == nil && got.Count > 0
	})
	n.Kill()
	running.Wait()
	require.ErrorIs(t, err, ErrGone)
	ok, failed := rep.Requests()
	require.NotZero(t, ok)
	require.NotZero(t, failed)
}

func TestWritesOnCutConnectionsAreResolved(t *testing.T) {
	endpoint := startEtcd(t)
	for _, w := range []string{"mixed", "delete"} {
		t.Run(w, func(t *testing.T) {
			proxy, through := harness.StartProxy(t, endpoint)
			ctx, stop := context.WithCancel(t.Context())
			var cutting sync.WaitGroup
			cutting.Go(func() {
				// The moments get longer, so that every answer gets through in the end.
				for n := 0; retry.Sleep(ctx, time.Duration(20+5*n)*time.Millisecond) == nil; n++ {
					proxy.Cut()
				}
			})
			defer func() { stop(); cutting.Wait() }()
			cfg := small(w, through)
			cfg.Total, cfg.Keys = 2000, 2000
			rep, err := Run(t.Context(), cfg)
			require.NoError(t, err)
			_, failed := rep.Requests()
			t.Logf("%d requests failed: %+v", failed, rep.Phases)
			require.Zero(t, rep.Verification.Lost)
			require.Zero(t, rep.Verification.Skipped)
			require.NotZero(t, failed, "no connection was cut")
		})
	}
}
