package robustness

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"go.etcd.io/etcd/tests/v3/robustness/identity"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/traffic"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/robustness/internal/durable"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { os.Exit(harness.Main(enginetest.Main(m)).Run()) }

// profiles are those of etcd's own scenarios, under their names, and one with
// many deletions.
var profiles = []struct {
	name    string
	traffic traffic.Traffic
	load    traffic.KeyValue
}{
	{"EtcdHighTraffic", traffic.EtcdPut, traffic.KeyValueHigh},
	{"EtcdTrafficDeleteLeases", traffic.EtcdPutDeleteLease, traffic.KeyValueMedium},
	{"KubernetesHighTraffic", traffic.Kubernetes, traffic.KeyValueHigh},
	{"KubernetesLowTraffic", traffic.Kubernetes, traffic.KeyValueMedium},
	{"KubernetesCreateDelete", traffic.KubernetesCreateDelete, traffic.KeyValueMedium},
}

const (
	// trafficTime is how long the traffic runs before and after a disturbance.
	trafficTime = time.Second
	settleTime  = 5 * time.Minute
	// validateTime bounds the search for a linearization. It grows beyond all
	// bounds with some combinations of unanswered requests, which say nothing:
	// then there is another attempt.
	validateTime = time.Minute
	attempts     = 5
	// leastRevisions is what the traffic must have written to prove anything.
	leastRevisions = 50
)

// TestRobustness runs traffic on each engine with each disturbance, on MySQL only with
// those of the database; in the long form with all of them, and with each profile too.
func TestRobustness(t *testing.T) {
	rounds := harness.UsualOrLong(1, 5)
	for _, e := range harness.Engines() {
		t.Run(e.Name, func(t *testing.T) {
			disturbances := disturbances
			switch {
			case e.Name == string(enginetest.MySQL) && !harness.Long():
				// It is sent what MariaDB is sent. What differs is how it fails.
				disturbances = databaseDisturbances
			case e.Name != harness.SQLite.Name:
				disturbances = slices.Concat(disturbances, databaseDisturbances)
			}
			for round := range rounds {
				for i, p := range profiles {
					for j, d := range disturbances {
						// The short form goes through all disturbances.
						if !harness.Long() && j%len(profiles) != (i+round)%len(profiles) {
							continue
						}
						t.Run(fmt.Sprintf("%s/%s", p.name, d.name), func(t *testing.T) {
							testRobustness(t, e, p.traffic, p.load, d)
						})
					}
				}
			}
		})
	}
}

func testRobustness(t *testing.T, e harness.Engine, tf traffic.Traffic, load traffic.KeyValue, d disturbance) {
	for range attempts {
		if decided := attempt(t, e, tf, load, d); decided {
			return
		}
	}
	t.Errorf("undecided after %d attempts", attempts)
}

// attempt reports whether the validators came to a result; a bad one ends t.
func attempt(t *testing.T, e harness.Engine, tf traffic.Traffic, load traffic.KeyValue, d disturbance) bool {
	w := startWorld(t, e, d)
	archive := durable.NewArchive(t, w.datastore)
	w.node = harness.StartNodeOn(t, w.through, "--watch-progress-notify-interval", "100ms")

	reports := drive(t, w, tf, load, d)

	w.node.Stop()
	persisted := archive.Requests(t, reports)
	if len(persisted) <= leastRevisions {
		t.Logf("%d requests were written, too few to prove anything", len(persisted))
		return false
	}
	result := validate.ValidateAndReturnVisualize(zap.NewNop(),
		validate.Config{ExpectRevisionUnique: tf.ExpectUniqueRevision()}, reports, persisted, validateTime)
	if s := result.Linearization.Status; s == validate.Timeout || s == validate.DeadlineExceeded {
		t.Logf("undecided within %s whether a linearization exists", validateTime)
		return false
	}
	if err := result.Error(); err != nil {
		durable.Keep(t, result, reports, persisted)
		t.Fatal(err)
	}
	for _, r := range []validate.Result{result.Assumptions, result.Linearization.Result, result.Watch,
		result.Serializable} {
		require.NotEqual(t, validate.Unknown, r.Status, "a validator was not run")
	}
	return true
}

// drive runs traffic and watches, disturbs the server, and returns what the
// clients saw.
func drive(t *testing.T, w *world, tf traffic.Traffic, load traffic.KeyValue, d disturbance) []report.ClientReport {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	endpoints := []string{w.node.Host()}
	// Times are relative to this one; its monotonic reading orders operations.
	start := time.Now()
	ids := identity.NewIDProvider()
	clients := client.NewSet(ids, start)
	defer clients.Close()
	watchers := client.NewSet(ids, start)
	defer watchers.Close()
	require.NoError(t, traffic.CheckEmptyDatabaseAtStart(ctx, zap.NewNop(), endpoints, clients))

	watched := make(chan error, 1)
	newest := make(chan int64, 1)
	go func() {
		watched <- client.CollectClusterWatchEvents(ctx, client.CollectClusterWatchEventsParam{
			Lg: zap.NewNop(), Endpoints: endpoints, MaxRevisionChan: newest, ClientSet: watchers,
		})
	}()

	finish := make(chan struct{})
	var running sync.WaitGroup
	var once sync.Once
	end := func() {
		once.Do(func() { close(finish) })
		running.Wait()
	}
	defer end()
	simulate(ctx, t, &running, finish, endpoints, clients, tf, load)
	pass(trafficTime)
	revision := w.node.Client()
	eventually.Nil(t, settleTime, func(ctx context.Context) error { // on a slow machine, it takes longer
		r, err := revision.Get(ctx, "revision", clientv3.WithSerializable())
		if err == nil && r.Header.Revision < 2*leastRevisions {
			err = fmt.Errorf("the traffic has come to revision %d only", r.Header.Revision)
		}
		return err
	})
	d.do(w)
	pass(trafficTime)
	end()

	// The validators need a last operation that succeeds.
	settle, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	last, err := clients.NewClient(endpoints)
	require.NoError(t, err)
	var put *clientv3.PutResponse
	tries := 0
	eventually.Nil(t, settleTime, func(ctx context.Context) (err error) {
		tries++
		put, err = last.Put(ctx, "tombstone", fmt.Sprint(tries))
		return err
	})
	newest <- put.Header.Revision
	close(newest)
	select {
	case err := <-watched:
		require.NoError(t, err)
	case <-settle.Done():
		t.Fatalf("the watch from the beginning did not reach revision %d within %s", put.Header.Revision, settleTime)
	}
	return slices.Concat(clients.Reports(), watchers.Reports())
}

// simulate starts the traffic; it ends, some time after finish is closed, when
// running is done.
func simulate(ctx context.Context, t *testing.T, running *sync.WaitGroup, finish chan struct{}, endpoints []string,
	clients *client.ClientSet, tf traffic.Traffic, load traffic.KeyValue,
) {
	limiter := rate.NewLimiter(rate.Limit(load.MaximalQPS), load.BurstableQPS)
	keys, storage := traffic.NewKeyStore(10, "key"), traffic.NewKubernetesStorage()
	watch, compaction := traffic.WatchDefault, traffic.CompactionDefault
	require.NoError(t, traffic.SimulateKeyValueTraffic(ctx, running, &load, endpoints, clients, tf,
		traffic.RunTrafficLoopParam{
			QPSLimiter:                         limiter,
			IDs:                                clients.IdentityProvider(),
			LeaseIDStorage:                     identity.NewLeaseIDStorage(),
			NonUniqueRequestConcurrencyLimiter: traffic.NewConcurrencyLimiter(load.MaxNonUniqueRequestConcurrency),
			KeyStore:                           keys, Storage: storage,
			Finish: finish}))
	require.NoError(t, traffic.SimulateWatchTraffic(ctx, running, &watch, endpoints, clients, tf,
		traffic.RunWatchLoopParam{
			Config: watch, QPSLimiter: limiter, KeyStore: keys, Storage: storage, Finish: finish, Logger: zap.NewNop(),
		}))
	require.NoError(t, traffic.SimulateCompactionTraffic(ctx, running, &compaction, endpoints, clients, tf,
		traffic.RunCompactLoopParam{
			Period: compaction.Period, Finish: finish}))
}
