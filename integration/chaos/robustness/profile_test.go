package robustness

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	etcdtraffic "go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// profile is the traffic of one of etcd's own scenarios, under its name, and what happens to a node meanwhile.
type profile struct {
	name         string
	traffic      etcdtraffic.Traffic
	load         etcdtraffic.KeyValue
	plan         string
	databasePlan string // of a node over a database server; empty: plan
}

var profiles = []profile{
	{"EtcdHighTraffic", etcdtraffic.EtcdPut, etcdtraffic.KeyValueHigh, "kill@leader/100ms", "reset-database@leader/100ms"},
	{"EtcdTrafficDeleteLeases", etcdtraffic.EtcdPutDeleteLease, etcdtraffic.KeyValueMedium, "stop@leader/100ms",
		"cut-database@leader/1s"},
	{"KubernetesHighTraffic", etcdtraffic.Kubernetes, etcdtraffic.KeyValueHigh, "pause@leader/1s", ""},
	{"KubernetesLowTraffic", etcdtraffic.Kubernetes, etcdtraffic.KeyValueMedium,
		"kill@leader/10ms kill@leader/10ms kill@leader/10ms", "kill@database/100ms"},
	{"KubernetesCreateDelete", etcdtraffic.KubernetesCreateDelete, etcdtraffic.KeyValueMedium, "kill@leader/100ms",
		"kill@database+kill@leader/100ms"},
}

// TestTrafficOfEtcd has the traffic of etcd's own robustness tests judged, on one node over each engine.
func TestTrafficOfEtcd(t *testing.T) {
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		for _, profile := range profiles {
			t.Run(profile.name, func(t *testing.T) {
				cfg, text := harness.ClusterConfig{Size: 1, Network: true, Product: enginetest.Product(e.Name)}, profile.plan
				switch {
				case e.StartServer == nil && !harness.TargetIsEtcd():
					url := e.Datastore(t)
					cfg = harness.ClusterConfig{Size: 1, Datastore: func(int) string { return url }}
				case e.StartServer != nil && profile.databasePlan != "":
					text = profile.databasePlan
				}
				p, err := parsePlan(text)
				require.NoError(t, err)
				conclude(t, playOn(t, cfg, &profile, harness.Seed(), p), profile.traffic.ExpectUniqueRevision())
			})
		}
	})
}

// start starts the profile's clients, and waits until they have written something. They end, some time after finish
// is closed, when running is done.
func (p *profile) start(ctx context.Context, r *round, running *sync.WaitGroup, finish chan struct{},
	clients *client.ClientSet) {
	r.t.Helper()
	endpoints := r.c.Endpoints()
	r.limiter = rate.NewLimiter(rate.Limit(p.load.MaximalQPS), p.load.BurstableQPS)
	keys, storage := etcdtraffic.NewKeyStore(10, "key"), etcdtraffic.NewKubernetesStorage()
	watch, compaction := etcdtraffic.WatchDefault, etcdtraffic.CompactionDefault
	require.NoError(r.t, etcdtraffic.SimulateKeyValueTraffic(ctx, running, &p.load, endpoints, clients, p.traffic,
		etcdtraffic.RunTrafficLoopParam{
			QPSLimiter: r.limiter, IDs: clients.IdentityProvider(), LeaseIDStorage: identity.NewLeaseIDStorage(),
			NonUniqueRequestConcurrencyLimiter: etcdtraffic.NewConcurrencyLimiter(p.load.MaxNonUniqueRequestConcurrency),
			KeyStore:                           keys, Storage: storage, Finish: finish,
		}))
	require.NoError(r.t, etcdtraffic.SimulateWatchTraffic(ctx, running, &watch, endpoints, clients, p.traffic,
		etcdtraffic.RunWatchLoopParam{
			Config: watch, QPSLimiter: r.limiter, KeyStore: keys, Storage: storage, Finish: finish, Logger: zap.NewNop(),
		}))
	require.NoError(r.t, etcdtraffic.SimulateCompactionTraffic(ctx, running, &compaction, r.compactors, clients, p.traffic,
		etcdtraffic.RunCompactLoopParam{Period: compaction.Period, Finish: finish}))
	revision := r.c.Client()
	eventually.Nil(r.t, settleTime, func(ctx context.Context) error {
		answer, err := revision.Get(ctx, "revision", clientv3.WithSerializable())
		if err == nil && answer.Header.Revision < 2*leastRevisions {
			err = fmt.Errorf("the traffic has come to revision %d only", answer.Header.Revision)
		}
		return err
	})
}
