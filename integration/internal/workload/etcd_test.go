package workload

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(harness.Main(m)) }

// startEtcd runs a fresh etcd until the test ends and returns its endpoint.
func startEtcd(t *testing.T) string {
	t.Helper()
	return harness.StartEtcd(t, "--unsafe-no-fsync").Endpoint()
}

func small(workload, endpoint string) Config {
	c := DefaultConfig()
	c.Endpoints, c.Workload, c.Prefix = []string{endpoint}, workload, "/registry/"+workload
	c.Clients, c.Total, c.Keys, c.PageSize = 8, 300, 300, 50
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

func connection(t *testing.T, endpoint string) *clientv3.Client {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

func TestPrefixInUseIsRefusedAndKept(t *testing.T) {
	endpoint := startEtcd(t)
	c := connection(t, endpoint)
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
	c := connection(t, n.Endpoint())
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
			cfg := small(w, startCutter(t, endpoint[len("http://"):]))
			cfg.Total, cfg.Keys = 2000, 2000
			cfg.RetryFor = 20 * time.Second
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

// startCutter forwards connections to target and cuts each after a moment,
// whatever is under way. The moments get longer, so that every answer gets
// through in the end.
func startCutter(t *testing.T, target string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() {
		cancel()
		require.NoError(t, l.Close())
		wg.Wait()
	})
	wg.Go(func() {
		for n := 0; ; n++ {
			in, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // a connection that was gone already
			}
			out, err := net.Dial("tcp", target)
			if err != nil {
				_ = in.Close()
				continue
			}
			cut := func() { _ = in.Close(); _ = out.Close() }
			stop := context.AfterFunc(ctx, cut)
			moment := 20 + rand.IntN(200)*(1+n/16)*(1+n/16)
			timer := time.AfterFunc(time.Duration(moment)*time.Millisecond, cut)
			wg.Go(func() { _, _ = io.Copy(out, in); cut() })
			wg.Go(func() { _, _ = io.Copy(in, out); cut(); timer.Stop(); stop() })
		}
	})
	return "http://" + l.Addr().String()
}
