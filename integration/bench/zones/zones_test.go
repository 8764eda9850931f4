package zones

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/machine"
	"github.com/sqlbrain/sqlbrain/integration/bench/internal/report"
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

// The systems. The leader is in the database's zone, which is the first, or in the second.
const (
	etcd, sqlbrain, elsewhere = "etcd", "sqlbrain", "sqlbrain, leader elsewhere"
)

var systems = []string{etcd, sqlbrain, elsewhere}

// figure is what the clients of all zones found together.
type figure struct {
	perSecond         float64
	leaders, others   []float64 // milliseconds that each request took in the leader's zone, and in the others
	leader, following float64   // round trips
}

// TestZones: without -write-page it only shows that the measurement works.
func TestZones(t *testing.T) {
	if harness.TargetIsEtcd() || enginetest.OnTiDB() {
		t.Skip("it starts etcd, and MariaDB with a replica")
	}
	clients, duration := []int{1, 8}, 200*time.Millisecond
	if *writePage {
		clients, duration = []int{1, 64, 256}, 3*time.Second
	}
	figures, stopped := map[string]*figure{}, map[string]time.Duration{}
	for _, system := range systems {
		t.Run(system, func(t *testing.T) {
			t.Run("near", func(t *testing.T) {
				c := start(t, system, near)
				for _, r := range requests {
					for _, n := range clients {
						figures[fmt.Sprint(system, r.name, n)] = measure(t, c, r, n, duration, 0, 1, 2)
					}
				}
				if *writePage { // patient nodes take their time
					stopped[system] = failover(t, c)
				}
			})
			t.Run("far", func(t *testing.T) {
				c := start(t, system, far)
				for _, r := range requests {
					leader := c.Leader()
					figures[fmt.Sprint(system, r.name)] = &figure{ // one client after the other
						leader:    result.Quantile(measure(t, c, r, 1, duration, leader).leaders, 0.5) / 1000 / far.Seconds(),
						following: result.Quantile(measure(t, c, r, 1, duration, 2).others, 0.5) / 1000 / far.Seconds(),
					}
				}
			})
		})
	}
	if !*writePage || t.Failed() {
		return
	}
	require.NoError(t, os.WriteFile(page, text(t, clients, figures, stopped), 0o644))
}

// start starts a member in each zone, the first or the second of which leads.
func start(t *testing.T, system string, distance time.Duration) *harness.Cluster {
	t.Helper()
	away := func(to string) string {
		proxy, through := harness.StartProxy(t, to)
		proxy.Delay(distance)
		return through
	}
	cfg := harness.ClusterConfig{Etcd: system == etcd, Size: zones, Patient: !*writePage,
		Advertise: func(_ int, peer string) string { return away(peer) }}
	if !cfg.Etcd {
		primary := startPrimary(t, distance)
		cfg.Datastore = func(i int) string {
			if i == 0 {
				return primary
			}
			return away(primary)
		}
	}
	c := harness.StartCluster(t, cfg)
	to := 0
	if system == elsewhere {
		to = 1
	}
	target, err := c.Client().Status(t.Context(), c.Node(to).Endpoint())
	require.NoError(t, err)
	eventually.Nil(t, eventually.Deadline, func(ctx context.Context) error {
		leader := c.Leader()
		if leader == to {
			return nil
		}
		_, err := c.Node(leader).Client().MoveLeader(ctx, target.Header.MemberId)
		return cmp.Or(err, errors.New("another one leads"))
	})
	return c
}

// measure lets n clients in each of the zones send requests to the member there.
func measure(t *testing.T, c *harness.Cluster, r request, n int, duration time.Duration, in ...int) *figure {
	t.Helper()
	leader := c.Leader()
	var mu sync.Mutex
	var took [2][]float64 // in the leader's zone, in the others
	var failed error
	var all sync.WaitGroup
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
				client = c.Node(zone).Client()
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
				took[side] = append(took[side], mine...)
				if err != nil {
					failed = err
				}
			})
		}
	}
	all.Wait()
	require.NoError(t, failed)
	f := &figure{perSecond: float64(len(took[0])+len(took[1])) / duration.Seconds(), leaders: took[0], others: took[1]}
	t.Logf("%s, %d clients in each zone: %.0f a second; %s; %s", r.name, n, f.perSecond, p50p99(took[0]), p50p99(took[1]))
	return f
}

// p50p99 shows two quantiles.
func p50p99(ms []float64) string {
	return fmt.Sprintf("%.1f, %.1f", result.Quantile(ms, 0.5), result.Quantile(ms, 0.99))
}

// failover kills the leader and returns how long the other zones then waited for a put, at most.
func failover(t *testing.T, c *harness.Cluster) time.Duration {
	t.Helper()
	leader := c.Leader()
	c.Kill(leader)
	began := time.Now()
	var waits [zones]time.Duration
	var all sync.WaitGroup
	for i := range zones {
		if i == leader {
			continue
		}
		client := c.Node(i).Client()
		all.Go(func() {
			for client.Ctx().Err() == nil {
				ctx, cancel := context.WithTimeout(client.Ctx(), time.Second)
				_, err := client.Put(ctx, fmt.Sprint("failover", i), "v")
				cancel()
				if err == nil {
					waits[i] = time.Since(began)
					return
				}
			}
		})
	}
	all.Wait()
	return slices.Max(waits[:])
}

func text(t *testing.T, clients []int, figures map[string]*figure, stopped map[string]time.Duration) []byte {
	t.Helper()
	here, err := machine.Look(t.TempDir())
	require.NoError(t, err)
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Three zones: what to expect in a cloud\n\nWritten by `make bench WHAT=zones`. Three members, a "+
		"round "+
		"trip of %v apart; sqlbrain's database, a MariaDB, is in the zone of one of them, and each of its commits waits for "+
		"a replica in another zone. Values of %d bytes. All programs, and the proxies that delay what is sent, share the "+
		"machine: many clients measure its processors.\n\n", near, valueSize)
	b.WriteString(report.Conditions(&result.File{Started: time.Now(), Machine: here}))
	b.WriteString("\n## Round trips\n\nMedians of one client, with zones " + far.String() +
		" apart: in the leader's zone, and " +
		"in the others.\n\n| |")
	for _, s := range systems {
		fmt.Fprintf(&b, " %s: leader's zone | others |", s)
	}
	b.WriteString("\n|---" + strings.Repeat("|---|---", len(systems)) + "|\n")
	for _, r := range requests {
		fmt.Fprintf(&b, "| %s |", r.name)
		for _, s := range systems {
			f := figures[fmt.Sprint(s, r.name)]
			fmt.Fprintf(&b, " %.1f | %.1f |", f.leader, f.following)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "\n## Zones %v apart\n\np50 and p99 in ms: in the leader's zone, and in the others.\n\n"+
		"| | clients in each zone | | a second | leader's zone | others |\n|---|---|---|---|---|---|\n", near)
	for _, r := range requests {
		for _, n := range clients {
			for _, s := range systems {
				f := figures[fmt.Sprint(s, r.name, n)]
				fmt.Fprintf(&b, "| %s | %d | %s | %.0f | %s | %s |\n", r.name, n, s, f.perSecond, p50p99(f.leaders),
					p50p99(f.others))
			}
		}
	}
	b.WriteString("\nFrom the death of the leader until both other zones have put a key:")
	for i, s := range systems {
		fmt.Fprintf(&b, "%s %s %v", []string{"", ";"}[min(i, 1)], s, stopped[s].Round(10*time.Millisecond))
	}
	b.WriteString(".\n")
	return b.Bytes()
}
