//go:build linux

package zones

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	// writers put keys in each zone, each one after the other. The first gives up a put that takes longer than patience,
	// and each other one a little later: otherwise all would try again at once.
	writers  = 8
	patience = 300 * time.Millisecond
	later    = patience / writers
	// rounds are how often each fault happens.
	rounds = 3
)

// fault is what happens to a zone.
type fault struct {
	name   string
	zone   func(d *deployment) int
	strike func(d *deployment, zone int)
	on     []string // the systems that it is measured on
}

var faults = []fault{
	{"leader killed", leaders, func(d *deployment, zone int) { d.cluster.Kill(zone) }, systems},
	{"primary killed", func(d *deployment) int { return d.group.Primary() },
		func(d *deployment, zone int) { d.group.Kill(zone) }, []string{group}},
	{"leader and its zone's database killed", leaders, func(d *deployment, zone int) {
		d.cluster.Kill(zone)
		d.group.Kill(zone)
	}, []string{group}},
	{"leader's zone cut off", leaders, func(d *deployment, zone int) { d.network.set(near, zone) },
		[]string{etcd, mariaElsewhere, group}},
}

func leaders(d *deployment) int { return d.cluster.Leader() }

// suffer lets a fault happen under load, and returns how long it took until both other zones had put a key. It fails
// the test if a put that was acknowledged, before or since, is lost.
func suffer(t *testing.T, d *deployment, f fault, round string) time.Duration {
	t.Helper()
	zone := f.zone(d)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var struck atomic.Pointer[time.Time]
	var mu sync.Mutex
	var acked []string
	var back [zones]time.Duration
	var all sync.WaitGroup
	prefix := fmt.Sprintf("%s/%s/", f.name, round)
	for z := range zones {
		client := d.cluster.Node(z).Client()
		for w := range writers {
			all.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key, since := fmt.Sprintf("%s%d/%d/%d", prefix, z, w, n), struck.Load() // nil: it begins before the fault
					attempt, cancel := context.WithTimeout(ctx, patience+time.Duration(w)*later)
					_, err := client.Put(attempt, key, "v")
					cancel()
					if err != nil {
						time.Sleep(10 * time.Millisecond)
						continue
					}
					mu.Lock()
					acked = append(acked, key)
					if since != nil && back[z] == 0 {
						back[z] = time.Since(*since)
					}
					mu.Unlock()
				}
			})
		}
	}
	eventually.True(t, "puts", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(acked) > 100*writers
	})
	now := time.Now()
	struck.Store(&now)
	f.strike(d, zone)
	longest := time.Duration(0)
	eventually.True(t, "puts in both other zones", func() bool {
		mu.Lock()
		defer mu.Unlock()
		longest = 0
		for z := range zones {
			switch {
			case z == zone:
			case back[z] == 0:
				return false
			default:
				longest = max(longest, back[z])
			}
		}
		return true
	})
	stop()
	all.Wait()
	d.restore()
	found, err := d.cluster.Client().Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	have := map[string]bool{}
	for _, kv := range found.Kvs {
		have[string(kv.Key)] = true
	}
	for _, key := range acked {
		require.True(t, have[key], "%s was acknowledged, and is lost", key)
	}
	t.Logf("%s: %v; all of %d acknowledged puts are there", f.name, longest, len(acked))
	return longest
}

// restore makes everything run as it did before a fault.
func (d *deployment) restore() {
	d.t.Helper()
	d.network.set(near, -1)
	if g := d.group; g != nil {
		for i := range zones {
			if g.Running(i) {
				g.Rejoin(i)
			} else {
				g.Start(i)
			}
		}
		if p := g.Primary(); p != 0 {
			g.Exec(p, "SELECT group_replication_set_as_primary('"+g.Query(0, "SELECT @@server_uuid")+"')")
		}
	}
	for i := range zones {
		if !d.cluster.Node(i).Running() {
			d.cluster.Start(i)
		}
	}
	d.lead()
}
