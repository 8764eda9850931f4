package upgrade

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/cluster"
	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
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
	began   time.Time
	stop    chan struct{}
	done    sync.WaitGroup

	mu              sync.Mutex
	ended, renewals int
	wrong           []string
}

func keepLeases(t *testing.T, c *cluster.Cluster, rec *history.Recorder) *leases {
	t.Helper()
	l := &leases{t: t, rec: rec, clients: []*clientv3.Client{c.Client()}, began: time.Now(), stop: make(chan struct{})}
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

// tenancy is a client's time with one lease, from its grant to its end.
func (l *leases) tenancy(rnd *rand.Rand, id int64) {
	ctx, cancel := context.WithTimeout(l.t.Context(), 2*wait)
	defer cancel()
	client := func() *clientv3.Client { return l.clients[rnd.IntN(len(l.clients))] }
	lease := &siege.Lease{ID: id, TTL: shortestTTL + rnd.Int64N(longestTTL-shortestTTL+1)}
	key := fmt.Sprintf("/tenant/%x", id)
	// ask makes a request, and notes it. gone: the answer says that the lease, or its key, does not exist.
	ask := func(kind siege.CallKind, request func() (gone bool, err error)) (gone bool, err error) {
		call := siege.LeaseCall{Kind: kind, Key: key, Asked: time.Since(l.began)}
		call.Gone, err = request()
		if call.Answered = time.Since(l.began); err != nil {
			call.Err = err.Error()
		}
		lease.Calls = append(lease.Calls, call)
		return call.Gone, err
	}

	l.rec.BeginGrant(id)
	if _, err := ask(siege.GrantCall, func() (bool, error) {
		_, err := pb.NewLeaseClient(client().ActiveConnection()).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: lease.TTL})
		return false, err
	}); err != nil {
		l.rest(pause)
		return
	}
	l.rec.FinishGrant(id)
	l.rec.Begin(func(int) history.Op { return history.Op{Revoke: id} }) // the lease's end, which no client is told
	put := func() (bool, error) { return l.put(ctx, client(), key, id) }
	gone, err := ask(siege.PutCall, put)
	for err != nil && ctx.Err() == nil {
		l.sleep(ctx)
		gone, err = ask(siege.PutCall, put)
	}
	for range rnd.IntN(mostRenewals + 1) {
		l.rest(time.Duration(rnd.Int64N(lease.TTL * int64(time.Second) * 3 / 4)))
		if l.stopped() || gone {
			break
		}
		if gone, err = ask(siege.RenewCall, func() (bool, error) {
			_, err := client().KeepAliveOnce(ctx, clientv3.LeaseID(id))
			return goneOr(err)
		}); err == nil && !gone {
			l.mu.Lock()
			l.renewals++
			l.mu.Unlock()
		}
	}
	for !gone && ctx.Err() == nil {
		if gone, _ = ask(siege.GetCall, func() (bool, error) {
			r, err := client().Get(ctx, key, clientv3.WithCountOnly())
			return err == nil && r.Count == 0, err
		}); !gone {
			l.sleep(ctx)
		}
	}
	l.judge(lease, gone)
}

// goneOr returns err, or true if it says that a lease does not exist.
func goneOr(err error) (gone bool, _ error) {
	if errors.Is(err, rpctypes.ErrLeaseNotFound) {
		return true, nil
	}
	return false, err
}

// put writes the key of a lease, and reports whether the lease is gone.
func (l *leases) put(ctx context.Context, client *clientv3.Client, key string, id int64) (gone bool, err error) {
	op := l.rec.Begin(func(n int) history.Op {
		return history.Op{Puts: []history.Put{{Key: key, Value: history.Token(n), Lease: id}}}
	})
	r, err := client.Put(ctx, key, op.Puts[0].Value, clientv3.WithLease(clientv3.LeaseID(id)))
	switch gone, failed := goneOr(err); {
	case gone:
		l.rec.Finish(op, history.Refused, 0, nil, err)
		return true, nil
	case failed != nil:
		l.rec.Finish(op, history.Unknown, 0, nil, err)
		return false, err
	}
	l.rec.Finish(op, history.Applied, r.Header.Revision, nil, nil)
	return false, nil
}

// sleep waits before the next look, also once the leases are to end.
func (l *leases) sleep(ctx context.Context) {
	select {
	case <-time.After(pause):
	case <-ctx.Done():
	}
}

// judge notes the end of a lease that was just seen to be gone.
func (l *leases) judge(lease *siege.Lease, gone bool) {
	wrong := lease.TooEarly()
	if !gone {
		wrong = append(wrong, fmt.Sprintf("did not end within %s", 2*wait))
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(wrong) == 0 {
		l.ended++
		return
	}
	l.wrong = append(l.wrong, strings.Join(wrong, "\n")+"\n"+lease.String())
}
