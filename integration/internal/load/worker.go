package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

const (
	ownKeys  = 10 // a worker's own
	counters = 4  // shared by all, changed by compare-and-swap
	groups   = 4  // shared by all, three keys that are always written together

	// leaseTTL is long, so that no lease expires: actions of the store that no client
	// requested are not recorded.
	leaseTTL = 3600

	maxPadding = 2000 // bytes
)

// worker is one client. It sends one request at a time.
type worker struct {
	load   *Load
	number int
	kv     *clientv3.Client
	rec    *history.Recorder
	rnd    *rand.Rand
	leases []int64 // granted to it and not yet revoked
	grants int64
}

// Prefix is what the own keys of worker number begin with.
func Prefix(number int) string { return fmt.Sprintf("/w/%02d/", number) }

func (w *worker) ownKey() string  { return fmt.Sprintf("%sk%d", Prefix(w.number), w.rnd.IntN(ownKeys)) }
func (w *worker) counter() string { return fmt.Sprintf("/counter/%d", w.rnd.IntN(counters)) }

// actions are what a worker does, by weight.
var actions = []struct {
	weight int
	do     func(*worker, context.Context) error
}{
	{25, (*worker).put},
	{20, (*worker).group},
	{20, (*worker).increment},
	{6, (*worker).deleteKey},
	{2, (*worker).deletePrefix},
	{4, (*worker).putAndDelete},
	{3, (*worker).grant},
	{6, (*worker).putWithLease},
	{2, (*worker).revoke},
	{6, (*worker).readOwn},
	{3, (*worker).readGroups},
	{3, (*worker).readOld},
}

func newWorker(l *Load, number int) *worker {
	return &worker{
		load: l, number: number, kv: l.cfg.Clients[number%len(l.cfg.Clients)], rec: l.cfg.Recorder,
		rnd: rand.New(rand.NewPCG(l.cfg.Seed, uint64(l.cfg.Round*1000+number))),
	}
}

func (w *worker) run(ctx context.Context) {
	for ctx.Err() == nil && !w.load.stopped() {
		w.next(ctx)
	}
}

// next does an action at random.
func (w *worker) next(ctx context.Context) {
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	n := w.rnd.IntN(total)
	for _, a := range actions {
		if n -= a.weight; n < 0 {
			w.step(ctx, a.do)
			return
		}
	}
}

// step does one action. After an error that leaves the outcome open, it waits retryDelay.
func (w *worker) step(ctx context.Context, do func(*worker, context.Context) error) {
	request, cancel := context.WithTimeout(ctx, w.load.cfg.RequestTimeout)
	defer cancel()
	err := do(w, request)
	if err == nil || ctx.Err() != nil {
		return
	}
	w.load.note(err)
	if outcomeOf(err) == history.Unknown {
		select {
		case <-time.After(retryDelay):
		case <-ctx.Done():
		}
	}
}

// value returns a value that is recognised as request id's.
func (w *worker) value(id int) string {
	return history.Token(id) + strings.Repeat("x", w.rnd.IntN(maxPadding))
}

func (w *worker) put(ctx context.Context) error { return w.putOne(ctx, w.ownKey(), 0) }

func (w *worker) putOne(ctx context.Context, key string, lease int64) error {
	op := w.rec.Begin(func(id int) history.Op {
		return history.Op{Puts: []history.Put{{Key: key, Value: w.value(id), Lease: lease}}}
	})
	p := op.Puts[0]
	r, err := w.kv.Put(ctx, p.Key, p.Value, clientv3.WithLease(clientv3.LeaseID(p.Lease)))
	if err != nil {
		return w.failed(op, err)
	}
	w.rec.Finish(op, history.Applied, r.Header.Revision, nil, nil)
	return nil
}

func (w *worker) failed(op *history.Op, err error) error {
	w.rec.Finish(op, outcomeOf(err), 0, nil, err)
	return err
}

// group writes three keys that must never be seen apart.
func (w *worker) group(ctx context.Context) error {
	n := w.rnd.IntN(groups)
	return w.txn(ctx, func(id int) history.Op {
		value := w.value(id)
		var op history.Op
		for _, name := range []string{"x", "y", "z"} {
			op.Puts = append(op.Puts, history.Put{Key: fmt.Sprintf("/group/%d/%s", n, name), Value: value})
		}
		return op
	})
}

// increment reads a counter and swaps it for the next value.
func (w *worker) increment(ctx context.Context) error {
	key := w.counter()
	kvs, err := w.read(ctx, history.Read{Range: history.Range{Key: key}})
	if err != nil {
		return err
	}
	var mod int64
	if len(kvs) > 0 {
		mod = kvs[0].ModRevision
	}
	return w.txn(ctx, func(id int) history.Op {
		return history.Op{Compare: map[string]int64{key: mod}, Puts: []history.Put{{Key: key, Value: w.value(id)}}}
	})
}

func (w *worker) putAndDelete(ctx context.Context) error {
	gone := w.ownKey()
	return w.txn(ctx, func(id int) history.Op {
		return history.Op{
			Puts:    []history.Put{{Key: Prefix(w.number) + "moved", Value: w.value(id)}},
			Deletes: []history.Range{{Key: gone}},
		}
	})
}

// txn sends an op as one transaction; its else branch reads the keys compared.
func (w *worker) txn(ctx context.Context, compose func(id int) history.Op) error {
	op := w.rec.Begin(compose)
	var compares []clientv3.Cmp
	var then, otherwise []clientv3.Op
	for key, mod := range op.Compare {
		compares = append(compares, clientv3.Compare(clientv3.ModRevision(key), "=", mod))
		otherwise = append(otherwise, clientv3.OpGet(key))
	}
	for _, p := range op.Puts {
		then = append(then, clientv3.OpPut(p.Key, p.Value, clientv3.WithLease(clientv3.LeaseID(p.Lease))))
	}
	for _, d := range op.Deletes {
		then = append(then, clientv3.OpDelete(d.Key, clientv3.WithRange(d.End)))
	}
	r, err := w.kv.Txn(ctx).If(compares...).Then(then...).Else(otherwise...).Commit()
	if err != nil {
		return w.failed(op, err)
	}
	if r.Succeeded {
		w.rec.Finish(op, history.Applied, r.Header.Revision, nil, nil)
		return nil
	}
	var observed []history.KV
	for _, o := range r.Responses {
		observed = append(observed, keyValues(o.GetResponseRange())...)
	}
	w.rec.Finish(op, history.NotApplied, r.Header.Revision, observed, nil)
	return nil
}

func (w *worker) deleteKey(ctx context.Context) error {
	return w.deleteRange(ctx, history.Range{Key: w.ownKey()})
}

func (w *worker) deletePrefix(ctx context.Context) error {
	p := Prefix(w.number)
	return w.deleteRange(ctx, history.Range{Key: p, End: clientv3.GetPrefixRangeEnd(p)})
}

func (w *worker) deleteRange(ctx context.Context, r history.Range) error {
	op := w.rec.Begin(func(int) history.Op { return history.Op{Deletes: []history.Range{r}} })
	answer, err := w.kv.Delete(ctx, r.Key, clientv3.WithRange(r.End))
	if err != nil {
		return w.failed(op, err)
	}
	outcome := history.Applied
	if answer.Deleted == 0 {
		outcome = history.NotApplied
	}
	w.rec.Finish(op, outcome, answer.Header.Revision, nil, nil)
	return nil
}

// grant asks for a lease of a chosen id, so that one whose outcome is unknown
// can be recognised.
func (w *worker) grant(ctx context.Context) error {
	w.grants++
	id := int64(w.load.cfg.Round+1)<<40 | int64(w.number+1)<<20 | w.grants
	w.rec.BeginGrant(id)
	// Not the client's Grant: it takes no id, and sends a request again after it
	// may have been carried out.
	client := etcdserverpb.NewLeaseClient(w.kv.ActiveConnection())
	if _, err := client.LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{ID: id, TTL: leaseTTL}); err != nil {
		return err
	}
	w.rec.FinishGrant(id)
	w.leases = append(w.leases, id)
	return nil
}

func (w *worker) putWithLease(ctx context.Context) error {
	if len(w.leases) == 0 {
		return w.grant(ctx)
	}
	lease := w.leases[w.rnd.IntN(len(w.leases))]
	if w.rnd.IntN(4) == 0 {
		// Renewing changes nothing that the account shows; it must only work.
		if err := w.renew(ctx, lease); err != nil {
			return err
		}
	}
	return w.putOne(ctx, fmt.Sprintf("%sleased%d", Prefix(w.number), w.rnd.IntN(ownKeys)), lease)
}

// renew renews a lease. A server that stops ends the stream. The client's KeepAliveOnce
// is meant to continue on another server then, but does not recognise the error.
func (w *worker) renew(ctx context.Context, lease int64) error {
	for {
		_, err := w.kv.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
		if !errors.Is(err, rpctypes.ErrStopped) || ctx.Err() != nil {
			return err
		}
	}
}

func (w *worker) revoke(ctx context.Context) error {
	if len(w.leases) == 0 {
		return nil
	}
	i := w.rnd.IntN(len(w.leases))
	lease := w.leases[i]
	w.leases = append(w.leases[:i], w.leases[i+1:]...)
	op := w.rec.Begin(func(int) history.Op { return history.Op{Revoke: lease} })
	// Not the client's Revoke either: after a retry, "not found" would not show whether
	// the first attempt took effect.
	client := etcdserverpb.NewLeaseClient(w.kv.ActiveConnection())
	r, err := client.LeaseRevoke(ctx, &etcdserverpb.LeaseRevokeRequest{ID: lease})
	if err != nil {
		return w.failed(op, err)
	}
	w.rec.Finish(op, history.Applied, r.Header.Revision, nil, nil)
	return nil
}

func (w *worker) readOwn(ctx context.Context) error {
	p := Prefix(w.number)
	_, err := w.read(ctx, history.Read{
		Range:        history.Range{Key: p, End: clientv3.GetPrefixRangeEnd(p)},
		Serializable: w.rnd.IntN(4) == 0,
	})
	return err
}

func (w *worker) readGroups(ctx context.Context) error {
	_, err := w.read(ctx, history.Read{Range: history.Range{Key: "/group/", End: "/group0"}})
	return err
}

// readOld reads at a revision between the oldest allowed and the newest known.
func (w *worker) readOld(ctx context.Context) error {
	oldest, newest := w.load.cfg.Oldest, w.rec.Newest()
	if newest < oldest || newest == 0 {
		return nil
	}
	_, err := w.read(ctx, history.Read{
		Range: history.Range{Key: "/", End: "0"},
		Asked: oldest + w.rnd.Int64N(newest-oldest+1),
	})
	return err
}

func (w *worker) read(ctx context.Context, r history.Read) ([]history.KV, error) {
	opts := []clientv3.OpOption{clientv3.WithRange(r.End), clientv3.WithRev(r.Asked)}
	if r.Serializable {
		opts = append(opts, clientv3.WithSerializable())
	}
	read := w.rec.BeginRead(r)
	answer, err := w.kv.Get(ctx, r.Key, opts...)
	if err != nil {
		return nil, err
	}
	kvs := keyValues((*etcdserverpb.RangeResponse)(answer))
	w.rec.FinishRead(read, answer.Header.Revision, kvs)
	return kvs, nil
}

func keyValues(r *etcdserverpb.RangeResponse) []history.KV {
	var kvs []history.KV
	for _, kv := range r.GetKvs() {
		kvs = append(kvs, model.FromProto(kv))
	}
	return kvs
}
