package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/time/rate"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/siege"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const (
	leasePrefix = "leased/"
	// tenants are clients that have one lease at a time.
	tenants = 150
	// The shortest and longest time to live, in seconds. They are short, so that many
	// leases end during a round.
	shortestTTL, longestTTL = 2, 6
	// mostRenewals is how often a lease is renewed at most.
	mostRenewals = 6
	// beforeTheEnd is how long before the promised end a client looks whether the lease
	// is still there.
	beforeTheEnd = 30 * time.Millisecond
	// leaseEndWait bounds how long after the last fault the last lease may live: its
	// TTL, what a change of leader adds, and what a request that its client gave up may
	// take until it is executed, on a machine that does much else. leaseAskWait bounds one
	// question for what is left.
	leaseEndWait = eventually.Patience
	leaseAskWait = 10 * time.Second
	// leastLeases is how many leases must have ended to prove anything.
	leastLeases = 50
)

// leasePlan is what usual rounds do to a cluster with leases: leaders that hand over
// while their commits are slow, are killed, stopped and frozen, and a database that
// stalls.
const leasePlan = "delay-database@leader+move@leader/300ms pause@leader/2.5s pause@database/1s kill@leader/500ms " +
	"delay-database@leader+stop@leader/500ms"

// TestLeases: no key of a lease disappears before the last acknowledged renewal plus
// its TTL, and every lease that is not renewed is gone in bounded time, whatever
// happens to leaders and the database.
func TestLeases(t *testing.T) {
	if harness.TargetIsEtcd() {
		t.Skip("an etcd leader that is cut off acknowledges renewals that its successor does not know of")
	}
	first, limit := harness.Seed(), duration()
	start := time.Now()
	for i := uint64(0); i == 0 || time.Since(start) < limit; i++ {
		text := leasePlan
		if i%2 == 1 || *givenPlan != "" {
			text = "" // given, or drawn
		}
		if !t.Run(strconv.FormatUint(first+i, 10), func(t *testing.T) { judgeLeases(t, first+i, text) }) {
			return
		}
	}
}

// leaseRound is a cluster whose clients have leases.
type leaseRound struct {
	*round
	start   time.Time
	clients []*clientv3.Client // by node
	stop    chan struct{}
	done    sync.WaitGroup

	mu     sync.Mutex
	ended  []*siege.Lease
	leases map[string]*siege.Lease // by key
}

// judgeLeases runs a round of clients with leases, and judges it. The plan is text, or
// if that is empty, the seed's.
func judgeLeases(t *testing.T, seed uint64, text string) {
	t.Helper()
	r := &leaseRound{
		round:  &round{t: t, seed: seed, rnd: rand.New(rand.NewPCG(seed, 1)), limiter: rate.NewLimiter(requestRate, 20)},
		stop:   make(chan struct{}),
		leases: make(map[string]*siege.Lease),
	}
	r.c = harness.StartCluster(t, harness.ClusterConfig{Product: product(seed), Network: true})
	p := r.plan()
	if text != "" {
		var err error
		p, err = parsePlan(text)
		require.NoError(t, err)
	}
	t.Logf("on %s; replay: -seed=%d -plan=%q", product(seed), seed, p.String())
	before := r.term()
	r.play(p)

	var leases, renewals, late int
	var latest time.Duration
	for _, l := range r.ended {
		if wrong := l.Judge(); len(wrong) > 0 {
			t.Errorf("%s\n%s", strings.Join(wrong, "\n"), l)
		}
		if len(l.Deleted) > 0 {
			leases++
		}
		for _, c := range l.Calls {
			if c.Kind == siege.RenewCall && c.Acknowledged() {
				renewals++
			}
		}
		if d := l.Lateness(); d > time.Second {
			late++
			latest = max(latest, d)
		}
	}
	t.Logf("%d leases with keys ended, %d acknowledged renewals; %d faults, %d new leaders; %d leases lived more than a second longer, at most %s",
		leases, renewals, r.faults, r.term()-before, late, latest.Round(time.Millisecond))
	require.Greater(t, leases, leastLeases, "too few leases to prove anything")
}

// play runs clients and watches, carries the plan out, and waits until all leases have
// ended.
func (r *leaseRound) play(p plan) {
	r.start = time.Now()
	ctx, cancel := context.WithCancel(r.t.Context())
	var watches sync.WaitGroup
	defer watches.Wait()
	defer cancel()
	for n := range r.c.Size() {
		r.clients = append(r.clients, r.c.Node(n).Client())
		events := r.c.Node(n).Client().Watch(ctx, leasePrefix, clientv3.WithPrefix(), clientv3.WithRev(1),
			clientv3.WithFilterPut())
		watches.Go(func() { r.watch(n, events) })
	}
	for i := range tenants {
		rnd := rand.New(rand.NewPCG(r.seed, uint64(2+i)))
		r.done.Go(func() { r.tenant(ctx, i, rnd) })
	}
	r.pass(shortestTTL * time.Second)
	for i, s := range p {
		began := time.Since(r.start)
		serves := r.run(s)
		r.t.Logf("%6.2fs to %6.2fs  %s", began.Seconds(), time.Since(r.start).Seconds(), p[i:i+1])
		if !serves {
			break
		}
		r.pass(calm)
	}
	// on a slow machine, it takes longer
	eventually.True(r.t, "leases to end", func() bool { return r.endedWithKeys() > leastLeases })
	close(r.stop)
	r.done.Wait()
	r.awaitEnd(ctx)
}

// endedWithKeys returns how many leases with keys have ended.
func (r *leaseRound) endedWithKeys() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, l := range r.ended {
		if len(l.Deleted) > 0 {
			n++
		}
	}
	return n
}

// awaitEnd waits until no lease and no key is left, and every watch has seen that.
func (r *leaseRound) awaitEnd(ctx context.Context) {
	r.t.Helper()
	client := r.c.Client()
	var left []string
	poll := func() bool {
		request, cancel := context.WithTimeout(ctx, leaseAskWait)
		defer cancel()
		left = nil
		keys, err := client.Get(request, leasePrefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil {
			left = append(left, err.Error())
			return false
		}
		for _, kv := range keys.Kvs {
			left = append(left, string(kv.Key))
		}
		all, err := client.Leases(request)
		if err != nil {
			left = append(left, err.Error())
			return false
		}
		for _, l := range all.Leases {
			left = append(left, fmt.Sprintf("lease %x", int64(l.ID)))
		}
		return len(left) == 0
	}
	for deadline := time.Now().Add(leaseEndWait); !poll(); r.pass(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			r.t.Errorf("left over %s after the last client stopped: %s", leaseEndWait, strings.Join(left, ", "))
			break
		}
	}
	// Watches deliver in order: a key that is deleted last comes last.
	last := &siege.Lease{}
	r.hold(leasePrefix, last)
	eventually.Nil(r.t, leaseEndWait, func(ctx context.Context) error {
		_, err := client.Put(ctx, leasePrefix, "")
		return err
	})
	eventually.Nil(r.t, leaseEndWait, func(ctx context.Context) error {
		_, err := client.Delete(ctx, leasePrefix)
		return err
	})
	eventually.True(r.t, "every watch to see the end", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(last.Deleted) == r.c.Size()
	})
}

// watch notes what a node's watch shows.
func (r *leaseRound) watch(node int, events clientv3.WatchChan) {
	for response := range events {
		at := time.Since(r.start)
		r.mu.Lock()
		for _, e := range response.Events {
			if l := r.leases[string(e.Kv.Key)]; l != nil {
				l.Deleted = append(l.Deleted, siege.LeaseDeletion{Key: string(e.Kv.Key), Revision: e.Kv.ModRevision, At: at,
					Node: node})
			}
		}
		r.mu.Unlock()
	}
}

// hold has the deletion of key noted in l.
func (r *leaseRound) hold(key string, l *siege.Lease) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leases[key] = l
}

// tenant is a client that has one lease after the other.
func (r *leaseRound) tenant(ctx context.Context, number int, rnd *rand.Rand) {
	for i := 0; !r.stopped(); i++ {
		c := &tenancy{r: r, rnd: rnd, l: &siege.Lease{
			ID: int64(number+1)<<32 + int64(i), TTL: shortestTTL + rnd.Int64N(longestTTL-shortestTTL+1),
		}}
		for k := range 1 + rnd.IntN(3) {
			key := fmt.Sprintf("%s%d/%d/%d", leasePrefix, number, i, k)
			c.l.Keys = append(c.l.Keys, key)
			r.hold(key, c.l)
		}
		c.live(ctx)
		r.mu.Lock()
		r.ended = append(r.ended, c.l)
		r.mu.Unlock()
	}
}

func (r *leaseRound) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// tenancy is a client's time with one lease.
type tenancy struct {
	r        *leaseRound
	rnd      *rand.Rand
	l        *siege.Lease
	promised time.Duration // the end that is promised
}

// live grants the lease, puts keys, renews it a few times through any node, and then
// revokes it, or looks at it shortly before its end and leaves it.
func (c *tenancy) live(ctx context.Context) {
	if !c.call(ctx, siege.GrantCall, "") {
		return
	}
	for _, key := range c.l.Keys {
		if !c.call(ctx, siege.PutCall, key) {
			return
		}
	}
	for range c.rnd.IntN(mostRenewals + 1) {
		c.pause(time.Duration(c.rnd.Int64N(c.l.TTL * int64(time.Second) * 4 / 5)))
		if c.r.stopped() {
			return
		}
		if c.rnd.IntN(3) == 0 {
			c.call(ctx, siege.GetCall, c.l.Keys[c.rnd.IntN(len(c.l.Keys))])
		}
		for !c.call(ctx, siege.RenewCall, "") { // another node may answer
			if c.r.stopped() || c.over() {
				return
			}
			c.pause(afterError)
		}
	}
	if c.rnd.IntN(8) == 0 {
		c.call(ctx, siege.RevokeCall, "")
		return
	}
	c.pause(c.promised - beforeTheEnd - time.Since(c.r.start))
	c.call(ctx, siege.GetCall, c.l.Keys[c.rnd.IntN(len(c.l.Keys))])
	if c.rnd.IntN(4) == 0 {
		c.call(ctx, siege.RenewCall, "") // it may come too late
	}
}

// over reports whether the last call was answered that the lease is gone.
func (c *tenancy) over() bool { return c.l.Calls[len(c.l.Calls)-1].Gone }

func (c *tenancy) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-c.r.stop:
	}
}

// call makes one request at any node, notes it, and reports whether it was
// acknowledged.
func (c *tenancy) call(ctx context.Context, kind siege.CallKind, key string) bool {
	if err := c.r.limiter.Wait(ctx); err != nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	made := siege.LeaseCall{Kind: kind, Key: key, Node: c.rnd.IntN(len(c.r.clients)), Asked: time.Since(c.r.start)}
	gone, err := c.request(ctx, c.r.clients[made.Node], kind, key)
	made.Answered, made.Gone = time.Since(c.r.start), gone
	if err != nil {
		made.Err = err.Error()
	}
	if made.Acknowledged() && (kind == siege.GrantCall || kind == siege.RenewCall) {
		c.promised = made.Asked + time.Duration(c.l.TTL)*time.Second
	}
	c.r.mu.Lock()
	c.l.Calls = append(c.l.Calls, made)
	c.r.mu.Unlock()
	return made.Acknowledged()
}

// request makes one attempt, without the client's own retries. gone reports that the
// lease or key does not exist.
func (c *tenancy) request(ctx context.Context, client *clientv3.Client, kind siege.CallKind,
	key string) (gone bool, err error) {
	conn := client.ActiveConnection()
	switch kind {
	case siege.GrantCall:
		_, err = pb.NewLeaseClient(conn).LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: c.l.ID, TTL: c.l.TTL})
	case siege.PutCall:
		_, err = pb.NewKVClient(conn).Put(ctx, &pb.PutRequest{Key: []byte(key), Lease: c.l.ID})
	case siege.GetCall:
		var r *pb.RangeResponse
		if r, err = pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte(key)}); err == nil {
			gone = r.Count == 0
		}
	case siege.RevokeCall:
		_, err = pb.NewLeaseClient(conn).LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: c.l.ID})
	case siege.RenewCall:
		var stream pb.Lease_LeaseKeepAliveClient
		if stream, err = pb.NewLeaseClient(conn).LeaseKeepAlive(ctx); err != nil {
			return false, err
		}
		if err = stream.Send(&pb.LeaseKeepAliveRequest{ID: c.l.ID}); err != nil {
			return false, err
		}
		var r *pb.LeaseKeepAliveResponse
		if r, err = stream.Recv(); err == nil {
			gone = r.TTL == 0
		}
		_ = stream.CloseSend()
	}
	if rpctypes.Error(err) == rpctypes.ErrLeaseNotFound {
		return true, nil
	}
	return gone, err
}
