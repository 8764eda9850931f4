//go:build linux

package zones

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	zones = 3
	// near is the round trip between two zones of a cloud. With far the requests of one client show how many they take:
	// all else is small beside it.
	near, far = time.Millisecond, 20 * time.Millisecond
	page      = "../../../docs/benchmarks/zones.md"
	valueSize = 512
)

var writePage = flag.Bool("write-page", false, "measure for minutes, and write docs/benchmarks/zones.md")

// request is a kind of request that clients make.
type request struct {
	name string
	do   func(ctx context.Context, c *clientv3.Client, key string) error
}

var requests = []request{
	{"put", func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Put(ctx, key, string(make([]byte, valueSize)))
		return err
	}},
	{"get", func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Get(ctx, key)
		return err
	}},
	{"serializable get", func(ctx context.Context, c *clientv3.Client, key string) error {
		_, err := c.Get(ctx, key, clientv3.WithSerializable())
		return err
	}},
}

// The systems: sqlbrain over a MariaDB with a replica, or over a Group Replication. The leader is in the zone of the
// database's primary, which is the first, or in the second.
const (
	etcd           = "etcd"
	maria          = "MariaDB"
	mariaElsewhere = "MariaDB, leader elsewhere"
	group          = "Group Replication"
	groupElsewhere = "Group Replication, leader elsewhere"
)

var systems = []string{etcd, maria, mariaElsewhere, group, groupElsewhere}

// figure is what the clients of all zones found together.
type figure struct {
	perSecond         float64
	router            float64   // processors that the router took
	leaders, others   []float64 // milliseconds that each request took in the leader's zone, and in the others
	leader, following float64   // round trips
}

// deployment is a system with a member in each zone.
type deployment struct {
	t       *testing.T
	network *network
	cluster *harness.Cluster
	group   *harness.Replicated // nil without
	leader  int                 // the zone that it belongs to
}

// TestZones: without -write-page it only shows that the measurement works.
func TestZones(t *testing.T) {
	if harness.TargetIsEtcd() || enginetest.OnTiDB() {
		t.Skip("it starts etcd, and databases that replicate")
	}
	m := measurements{clients: []int{1, 8}, duration: 200 * time.Millisecond, figures: map[string]*figure{},
		waits: map[string][]time.Duration{}}
	if *writePage {
		m.clients, m.duration = []int{1, 64, 512}, 2500*time.Millisecond
	}
	network := startNetwork(t)
	t.Run(etcd, func(t *testing.T) { m.of(t, start(t, network, etcd), etcd) })
	for _, systems := range [][]string{{maria, mariaElsewhere}, {group, groupElsewhere}} {
		t.Run(systems[0], func(t *testing.T) {
			d := start(t, network, systems[0])
			for zone, system := range systems {
				d.leader = zone
				m.of(t, d, system)
			}
		})
	}
	complete := len(m.figures) == len(systems)*len(requests)*(len(m.clients)+1) // not with -run of some systems
	if *writePage && complete && !t.Failed() {
		require.NoError(t, os.WriteFile(page, m.page(t), 0o644))
	}
}

// measurements are what the page shows.
type measurements struct {
	clients  []int
	duration time.Duration
	figures  map[string]*figure
	waits    map[string][]time.Duration // after faults
}

// of measures a system that runs.
func (m *measurements) of(t *testing.T, d *deployment, system string) {
	t.Helper()
	t.Log(system)
	d.lead()
	for _, r := range requests {
		for _, n := range m.clients {
			m.figures[fmt.Sprint(system, r.name, n)] = measure(t, d, r, n, m.duration, 0, 1, 2)
		}
	}
	d.network.set(far, -1)
	for _, r := range requests { // one client after the other
		m.figures[fmt.Sprint(system, r.name)] = &figure{
			leader:    result.Quantile(measure(t, d, r, 1, m.duration/2, d.leader).leaders, 0.5) / 1000 / far.Seconds(),
			following: result.Quantile(measure(t, d, r, 1, m.duration/2, 2).others, 0.5) / 1000 / far.Seconds(),
		}
	}
	d.network.set(near, -1)
	if !*writePage { // patient nodes take their time
		return
	}
	for _, f := range faults {
		if slices.Contains(f.on, system) {
			for round := range rounds {
				m.waits[system+f.name] = append(m.waits[system+f.name], suffer(t, d, f, fmt.Sprint(system, round)))
			}
		}
	}
}

// start starts a member in each zone.
func start(t *testing.T, n *network, system string) *deployment {
	t.Helper()
	d := &deployment{t: t, network: n}
	cfg := harness.ClusterConfig{Etcd: system == etcd, Patient: !*writePage, Places: n.zones}
	switch system {
	case maria:
		primary := startPrimary(t, n)
		cfg.Datastore = func(int) string { return primary }
	case group:
		expel := 0
		if !*writePage {
			expel = 3600 // a server that is only slow is none that is gone
		}
		d.group = harness.StartReplicatedIn(t, n.zones, harness.Group, "--innodb-buffer-pool-size=256M",
			fmt.Sprintf("--group-replication-member-expel-timeout=%d", expel))
		cfg.Datastore = func(int) string { return d.group.URL() }
	}
	d.cluster = harness.StartCluster(t, cfg)
	return d
}

// lead makes the member lead that is to.
func (d *deployment) lead() {
	d.t.Helper()
	c := d.cluster
	target, err := c.Client().Status(d.t.Context(), c.Node(d.leader).Endpoint())
	require.NoError(d.t, err)
	eventually.Nil(d.t, eventually.Deadline, func(ctx context.Context) error {
		leader := c.Leader()
		if leader == d.leader {
			return nil
		}
		// etcd may give the move up without an answer.
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, err := c.Node(leader).Client().MoveLeader(ctx, target.Header.MemberId)
		return cmp.Or(err, errors.New("another one leads"))
	})
}

// measure lets n clients in each of the zones send requests to the member there.
func measure(t *testing.T, d *deployment, r request, n int, duration time.Duration, in ...int) *figure {
	t.Helper()
	leader := d.cluster.Leader()
	var mu sync.Mutex
	var times [2][]float64 // in the leader's zone, in the others
	var failed error
	var all sync.WaitGroup
	before, began := d.network.processorTime(), time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	for _, zone := range in {
		side := 0
		if zone != leader {
			side = 1
		}
		var client *clientv3.Client
		for i := range n {
			if i%8 == 0 {
				client = d.cluster.Node(zone).Client()
			}
			all.Go(func() {
				var mine []float64
				var err error
				key := fmt.Sprintf("zone%d/%d", zone, i)
				for err == nil && ctx.Err() == nil {
					began := time.Now()
					err = r.do(t.Context(), client, key)
					mine = append(mine, time.Since(began).Seconds()*1000)
				}
				mu.Lock()
				defer mu.Unlock()
				times[side] = append(times[side], mine...)
				if err != nil {
					failed = err
				}
			})
		}
	}
	all.Wait()
	require.NoError(t, failed)
	took := time.Since(began).Seconds()
	f := &figure{perSecond: float64(len(times[0])+len(times[1])) / took, leaders: times[0], others: times[1],
		router: (d.network.processorTime() - before) / took}
	t.Logf("%s, %d clients in each zone: %.0f a second; %s; %s; router %.2f", r.name, n, f.perSecond, p50p99(times[0]),
		p50p99(times[1]), f.router)
	return f
}

// p50p99 shows two quantiles.
func p50p99(ms []float64) string {
	return fmt.Sprintf("%.1f, %.1f", result.Quantile(ms, 0.5), result.Quantile(ms, 0.99))
}
