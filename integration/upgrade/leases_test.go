package upgrade

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	tenants = 8
	// The shortest and longest time to live, in seconds.
	shortestTTL, longestTTL = 3, 6
	mostRenewals            = 5
	// pause is how long a tenant waits after a request that failed, and between two looks at its key.
	pause = 200 * time.Millisecond
	// leastLeases is how many leases must have ended to prove anything.
	leastLeases = 10
)

// leases are clients that grant leases of a few seconds, renew them through any member, and abandon them. Their
// requests are part of the recorded history.
type leases struct {
	t       *testing.T
	rec     *history.Recorder
	clients []*clientv3.Client // of all members, and of each
	stop    chan struct{}
	done    sync.WaitGroup

	mu              sync.Mutex
	ended, renewals int
	wrong           []string
}

func keepLeases(t *testing.T, c *cluster.Cluster, rec *history.Recorder) *leases {
	t.Helper()
	l := &leases{t: t, rec: rec, clients: []*clientv3.Client{c.Client()}, stop: make(chan struct{})}
	for n := range c.Size() {
		l.clients = append(l.clients, c.Node(n).Client())
	}
	for i := range tenants {
		rnd := rand.New(rand.NewPCG(uint64(i), 0))
		l.done.Go(func() {
			for n := int64(1); !l.stopped() && t.Context().Err() == nil; n++ {
				l.tenancy(rnd, int64(i+1)<<50|n) // above the load's ids
			}
		})
	}
	t.Cleanup(l.done.Wait)
	return l
}

// end waits until every lease has ended, and reports what was wrong.
func (l *leases) end() {
	l.t.Helper()
	eventually.True(l.t, "leases to end", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.ended >= leastLeases
	})
	close(l.stop)
	l.done.Wait()
	require.Empty(l.t, l.wrong)
	l.t.Logf("%d leases ended after %d renewals", l.ended, l.renewals)
}

func (l *leases) stopped() bool {
	select {
	case <-l.stop:
		return true
	default:
		return false
	}
}

func (l *leases) rest(d time.Duration) {
	select {
	case <-time.After(d):
	case <-l.stop:
	case <-l.t.Context().Done():
	}
}

// tenancy is a client's time with one lease, from its grant to its end. A grant or renewal that was acknowledged
// promises that the lease lives for its TTL, counted from before the request was sent.
func (l *leases) tenancy(rnd *rand.Rand, id int64) {
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*wait)
	defer cancel()
	client := func() *clientv3.Client { return l.clients[rnd.IntN(len(l.clients))] }
	ttl := shortestTTL + rnd.Int64N(longestTTL-shortestTTL+1)
	key := fmt.Sprintf("/tenant/%x", id)

	l.rec.BeginGrant(id)
	promised := time.Now().Add(time.Duration(ttl) * time.Second)
	if _, err := pb.NewLeaseClient(client().ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: ttl}); err != nil {
		l.rest(pause)
		return
	}
	l.rec.FinishGrant(id)
	l.rec.Begin(func(int) history.Op { return history.Op{Revoke: id} }) // the lease's end, which no client is told
	put, gone := l.put(ctx, client(), key, id)
	for !put && !gone && ctx.Err() == nil {
		l.sleep(ctx)
		put, gone = l.put(ctx, client(), key, id)
	}
	for range rnd.IntN(mostRenewals + 1) {
		l.rest(time.Duration(rnd.Int64N(ttl * int64(time.Second) * 3 / 4)))
		if l.stopped() || gone {
			break
		}
		asked := time.Now()
		switch _, err := client().KeepAliveOnce(ctx, clientv3.LeaseID(id)); {
		case err == nil:
			promised = asked.Add(time.Duration(ttl) * time.Second)
			l.mu.Lock()
			l.renewals++
			l.mu.Unlock()
		case errors.Is(err, rpctypes.ErrLeaseNotFound):
			gone = true
		}
	}
	for !gone && ctx.Err() == nil {
		r, err := client().Get(ctx, key, clientv3.WithCountOnly())
		if gone = err == nil && r.Count == 0; !gone {
			l.sleep(ctx)
		}
	}
	l.judge(id, ttl, gone, promised)
}

// put writes the key of a lease, and reports whether that was acknowledged, or refused because the lease is gone.
func (l *leases) put(ctx context.Context, client *clientv3.Client, key string, id int64) (put, gone bool) {
	op := l.rec.Begin(func(n int) history.Op {
		return history.Op{Puts: []history.Put{{Key: key, Value: history.Token(n), Lease: id}}}
	})
	r, err := client.Put(ctx, key, op.Puts[0].Value, clientv3.WithLease(clientv3.LeaseID(id)))
	switch {
	case err == nil:
		l.rec.Finish(op, history.Applied, r.Header.Revision, nil, nil)
		return true, false
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		l.rec.Finish(op, history.Refused, 0, nil, err)
		return false, true
	}
	l.rec.Finish(op, history.Unknown, 0, nil, err)
	return false, false
}

// sleep waits before the next look, also once the leases are to end.
func (l *leases) sleep(ctx context.Context) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// judge notes the end of a lease that was just seen to be gone.
func (l *leases) judge(id, ttl int64, gone bool, promised time.Time) {
	early := time.Until(promised)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case !gone:
		l.wrong = append(l.wrong, fmt.Sprintf("lease %x of %d s did not end within %s", id, ttl, 2*wait))
	case early > 0:
		l.wrong = append(l.wrong, fmt.Sprintf("lease %x of %d s ended %s too early", id, ttl, early))
	default:
		l.ended++
	}
}
