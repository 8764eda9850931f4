package robustness

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/tests/v3/robustness/client"
	"golang.org/x/time/rate"
)

const (
	prefix = "key"
	// Few keys, so that clients meet.
	keys     = 6
	leaseTTL = 3600 // none expires: what the store does on its own accord is not recorded

	requestTimeout = 800 * time.Millisecond
	// requestRate bounds the length of histories, for the judges' sake.
	requestRate = 600
	slowRate    = 20
	// ambiguous is how many requests of which an unanswered one cannot be recognised
	// afterwards may be under way. Each can be anywhere in the order from then
	// on, and the search for one tries all.
	ambiguous = 2
	// afterError is what a client waits that got no answer.
	afterError = 20 * time.Millisecond
)

// traffic is clients that read and write until stop is closed.
type traffic struct {
	set       *client.ClientSet
	limiter   *rate.Limiter
	ambiguous chan struct{} // holds a token for each such request under way
	stop      chan struct{}
	done      sync.WaitGroup
	newest    atomic.Int64 // the newest revision that any client received
}

func newTraffic(set *client.ClientSet) *traffic {
	return &traffic{
		set: set, limiter: rate.NewLimiter(requestRate, 20),
		ambiguous: make(chan struct{}, ambiguous), stop: make(chan struct{}),
	}
}

// end ends all clients and returns when they have.
func (tr *traffic) end() {
	close(tr.stop)
	tr.done.Wait()
}

func (tr *traffic) stopped() bool {
	select {
	case <-tr.stop:
		return true
	default:
		return false
	}
}

func (tr *traffic) saw(revision int64) {
	for {
		n := tr.newest.Load()
		if revision <= n || tr.newest.CompareAndSwap(n, revision) {
			return
		}
	}
}

// worker is one client, which sends one request at a time.
type worker struct {
	*traffic
	endpoints []string
	rnd       *rand.Rand
	c         *client.RecordingClient
	lease     int64
}

// start starts a client of the endpoints.
func (tr *traffic) start(ctx context.Context, endpoints []string, rnd *rand.Rand) {
	w := &worker{traffic: tr, endpoints: endpoints, rnd: rnd}
	tr.done.Go(func() { w.run(ctx) })
}

// actions are what a client does, by weight.
var actions = []struct {
	weight int
	do     func(*worker, context.Context) error
}{
	{20, (*worker).put},
	{15, (*worker).get},
	{15, (*worker).list},
	{10, (*worker).listOld},
	{15, (*worker).compareAndSet},
	{10, (*worker).putAndDelete},
	{3, (*worker).delete},
	{8, (*worker).putWithLease},
	{3, (*worker).revoke},
}

func (w *worker) run(ctx context.Context) {
	do := (*worker).list
	for ctx.Err() == nil && !w.stopped() {
		if w.c == nil {
			c, err := w.set.NewClient(w.endpoints)
			if err != nil {
				return
			}
			w.c = c
		}
		if err := w.limiter.Wait(ctx); err != nil {
			return
		}
		if err := w.step(ctx, do); err == nil {
			do = w.draw()
			continue
		}
		// A new client connects at once; the old one would wait. The next request is
		// a read, so that unanswered writes do not pile up.
		_ = w.c.Close()
		w.c, do = nil, (*worker).list
		select {
		case <-time.After(afterError):
		case <-ctx.Done():
		}
	}
}

func (w *worker) step(ctx context.Context, do func(*worker, context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return do(w, ctx)
}

func (w *worker) draw() func(*worker, context.Context) error {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := w.rnd.IntN(total)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			return a.do
		}
	}
	panic("unreachable")
}

// someKeys returns n different keys.
func (w *worker) someKeys(n int) (k []string) {
	for _, i := range w.rnd.Perm(keys)[:n] {
		k = append(k, prefix+strconv.Itoa(i))
	}
	return k
}

// value returns a value that no other write has, so that it identifies the write.
func (w *worker) value() string { return strconv.Itoa(w.set.IdentityProvider().NewRequestID()) }

func (w *worker) put(ctx context.Context) error {
	r, err := w.c.Put(ctx, w.someKeys(1)[0], w.value())
	if err == nil {
		w.saw(r.Header.Revision)
	}
	return err
}

func (w *worker) get(ctx context.Context) error {
	r, err := w.c.Get(ctx, w.someKeys(1)[0])
	if err == nil {
		w.saw(r.Header.Revision)
	}
	return err
}

func (w *worker) list(ctx context.Context) error {
	limit := int64(0)
	if w.rnd.IntN(4) == 0 {
		limit = 3
	}
	r, err := w.c.Range(ctx, prefix, clientv3.GetPrefixRangeEnd(prefix), 0, limit, w.rnd.IntN(5) == 0)
	if err == nil {
		w.saw(r.Header.Revision)
	}
	return err
}

// listOld reads an old revision, which may have been compacted.
func (w *worker) listOld(ctx context.Context) error {
	newest := w.newest.Load()
	if newest < 2 {
		return nil
	}
	at := max(1, newest-w.rnd.Int64N(50))
	r, err := w.c.Range(ctx, prefix, clientv3.GetPrefixRangeEnd(prefix), at, 0, false)
	if err == nil {
		w.saw(r.Header.Revision)
	} else if compacted(err) {
		err = nil
	}
	return err
}

// compareAndSet reads keys and changes two if neither changed since.
func (w *worker) compareAndSet(ctx context.Context) error {
	k := w.someKeys(3)
	read, err := w.c.Range(ctx, prefix, clientv3.GetPrefixRangeEnd(prefix), 0, 0, false)
	if err != nil {
		return err
	}
	mod := map[string]int64{}
	for _, kv := range read.Kvs {
		mod[string(kv.Key)] = kv.ModRevision
	}
	r, err := w.c.Txn(ctx).If(
		clientv3.Compare(clientv3.ModRevision(k[0]), "=", mod[k[0]]),
		clientv3.Compare(clientv3.ModRevision(k[1]), "=", mod[k[1]]),
	).Then(
		clientv3.OpPut(k[0], w.value()), clientv3.OpPut(k[1], w.value()), clientv3.OpGet(k[2]),
	).Else(
		clientv3.OpGet(k[0]), clientv3.OpGet(k[1]),
	).Commit()
	if err == nil {
		w.saw(r.Header.Revision)
	}
	return err
}

// putAndDelete changes several keys in one revision.
func (w *worker) putAndDelete(ctx context.Context) error {
	k := w.someKeys(3)
	r, err := w.c.Txn(ctx).Then(clientv3.OpPut(k[0], w.value()), clientv3.OpDelete(k[1]), clientv3.OpGet(k[2])).Commit()
	if err == nil {
		w.saw(r.Header.Revision)
	}
	return err
}

// alone runs a request that cannot be recognised afterwards, unless too many
// such are under way.
func (w *worker) alone(do func() error) error {
	select {
	case w.ambiguous <- struct{}{}:
		defer func() { <-w.ambiguous }()
		return do()
	default:
		return nil
	}
}

func (w *worker) delete(ctx context.Context) error {
	return w.alone(func() error {
		r, err := w.c.Delete(ctx, w.someKeys(1)[0])
		if err == nil {
			w.saw(r.Header.Revision)
		}
		return err
	})
}

func (w *worker) putWithLease(ctx context.Context) error {
	if w.lease == 0 {
		r, err := w.c.LeaseGrant(ctx, leaseTTL)
		if err != nil {
			return err
		}
		w.lease = int64(r.ID)
		return nil
	}
	r, err := w.c.PutWithLease(ctx, w.someKeys(1)[0], w.value(), w.lease)
	if err == nil {
		w.saw(r.Header.Revision)
	}
	return err
}

func (w *worker) revoke(ctx context.Context) error {
	if w.lease == 0 {
		return nil
	}
	return w.alone(func() error {
		lease := w.lease
		w.lease = 0
		_, err := w.c.LeaseRevoke(ctx, lease)
		return err
	})
}

// compactEvery is how often old revisions are given up.
const compactEvery = 1500 * time.Millisecond

// compact starts a client of endpoints that compacts now and then.
func (tr *traffic) compact(ctx context.Context, endpoints []string, rnd *rand.Rand) {
	tr.done.Go(func() {
		tick := time.NewTicker(compactEvery)
		defer tick.Stop()
		var last int64
		for {
			select {
			case <-tick.C:
			case <-tr.stop:
				return
			case <-ctx.Done():
				return
			}
			at := tr.newest.Load() - 20 - rnd.Int64N(100)
			if at <= last {
				continue
			}
			c, err := tr.set.NewClient(endpoints)
			if err != nil {
				return
			}
			request, cancel := context.WithTimeout(ctx, requestTimeout)
			// Never the same revision twice, so that it is known what became of it.
			_, _ = c.Compact(request, at)
			last = at
			cancel()
			_ = c.Close()
		}
	})
}

func compacted(err error) bool {
	return err != nil && fmt.Sprint(err) == "etcdserver: mvcc: required revision has been compacted"
}
