package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
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
	client *clientv3.Client
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
		load: l, number: number, client: l.cfg.Clients[number%len(l.cfg.Clients)], rec: l.cfg.Recorder,
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
	return w.change(ctx, func(value string) proto.Message {
		return &pb.PutRequest{Key: []byte(key), Value: []byte(value), Lease: lease}
	})
}

// change sends a request that writes, whose values are those that compose gets.
func (w *worker) change(ctx context.Context, compose func(value string) proto.Message) error {
	op := w.rec.Begin(func(id int) history.Op { return history.Op{Request: compose(w.value(id))} })
	var answer proto.Message
	var err error
	outcome := history.Applied
	kv := clientv3.RetryKVClient(w.client)
	switch r := op.Request.(type) {
	case *pb.PutRequest:
		answer, err = kv.Put(ctx, r)
	case *pb.DeleteRangeRequest:
		var a *pb.DeleteRangeResponse
		if a, err = kv.DeleteRange(ctx, r); a.GetDeleted() == 0 {
			outcome = history.NotApplied
		}
		answer = a
	case *pb.TxnRequest:
		var a *pb.TxnResponse
		if a, err = kv.Txn(ctx, r); !a.GetSucceeded() {
			outcome = history.NotApplied
		}
		answer = a
	}
	if err != nil {
		return w.failed(op, err)
	}
	w.rec.Finish(op, outcome, history.Strip(answer), answer, nil)
	return nil
}

func (w *worker) failed(op *history.Op, err error) error {
	w.rec.Finish(op, outcomeOf(err), 0, nil, err)
	return err
}

// group writes three keys that must never be seen apart.
func (w *worker) group(ctx context.Context) error {
	n := w.rnd.IntN(groups)
	return w.change(ctx, func(value string) proto.Message {
		txn := &pb.TxnRequest{}
		for _, name := range []string{"x", "y", "z"} {
			txn.Success = append(txn.Success, history.RequestOp(&pb.PutRequest{Key: fmt.Appendf(nil, "/group/%d/%s", n, name),
				Value: []byte(value)}))
		}
		return txn
	})
}

// increment reads a counter and swaps it for the next value.
func (w *worker) increment(ctx context.Context) error {
	key := []byte(w.counter())
	kvs, err := w.read(ctx, &pb.RangeRequest{Key: key})
	if err != nil {
		return err
	}
	var mod int64
	if len(kvs) > 0 {
		mod = kvs[0].ModRevision
	}
	return w.change(ctx, func(value string) proto.Message {
		return &pb.TxnRequest{
			Compare: []*pb.Compare{{Key: key, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: mod}}},
			Success: []*pb.RequestOp{history.RequestOp(&pb.PutRequest{Key: key, Value: []byte(value)})},
			Failure: []*pb.RequestOp{history.RequestOp(&pb.RangeRequest{Key: key})},
		}
	})
}

func (w *worker) putAndDelete(ctx context.Context) error {
	gone := []byte(w.ownKey())
	return w.change(ctx, func(value string) proto.Message {
		return &pb.TxnRequest{Success: []*pb.RequestOp{
			history.RequestOp(&pb.PutRequest{Key: []byte(Prefix(w.number) + "moved"), Value: []byte(value)}),
			history.RequestOp(&pb.DeleteRangeRequest{Key: gone}),
		}}
	})
}

func (w *worker) deleteKey(ctx context.Context) error { return w.deleteRange(ctx, w.ownKey(), "") }

func (w *worker) deletePrefix(ctx context.Context) error {
	p := Prefix(w.number)
	return w.deleteRange(ctx, p, clientv3.GetPrefixRangeEnd(p))
}

func (w *worker) deleteRange(ctx context.Context, key, end string) error {
	return w.change(ctx, func(string) proto.Message {
		return &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}
	})
}

// grant asks for a lease of a chosen id, so that one whose outcome is unknown
// can be recognised.
func (w *worker) grant(ctx context.Context) error {
	w.grants++
	id := int64(w.load.cfg.Round+1)<<40 | int64(w.number+1)<<20 | w.grants
	w.rec.BeginGrant(id)
	// Not the client's Grant: it takes no id, and sends a request again after it
	// may have been carried out.
	client := pb.NewLeaseClient(w.client.ActiveConnection())
	if _, err := client.LeaseGrant(ctx, &pb.LeaseGrantRequest{ID: id, TTL: leaseTTL}); err != nil {
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
		_, err := w.client.KeepAliveOnce(ctx, clientv3.LeaseID(lease))
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
	client := pb.NewLeaseClient(w.client.ActiveConnection())
	r, err := client.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: lease})
	if err != nil {
		return w.failed(op, err)
	}
	w.rec.Finish(op, history.Applied, r.Header.Revision, nil, nil)
	return nil
}

func (w *worker) readOwn(ctx context.Context) error {
	p := Prefix(w.number)
	_, err := w.read(ctx, &pb.RangeRequest{Key: []byte(p), RangeEnd: []byte(clientv3.GetPrefixRangeEnd(p)),
		Serializable: w.rnd.IntN(4) == 0})
	return err
}

func (w *worker) readGroups(ctx context.Context) error {
	_, err := w.read(ctx, &pb.RangeRequest{Key: []byte("/group/"), RangeEnd: []byte("/group0")})
	return err
}

// readOld reads at a revision between the oldest allowed and the newest known.
func (w *worker) readOld(ctx context.Context) error {
	oldest, newest := w.load.cfg.Oldest, w.rec.Newest()
	if newest < oldest || newest == 0 {
		return nil
	}
	_, err := w.read(ctx, &pb.RangeRequest{Key: []byte("/"), RangeEnd: []byte("0"),
		Revision: oldest + w.rnd.Int64N(newest-oldest+1)})
	return err
}

func (w *worker) read(ctx context.Context, r *pb.RangeRequest) ([]*mvccpb.KeyValue, error) {
	read := w.rec.BeginRead(history.Read{Request: r, Serializable: r.Serializable})
	answer, err := clientv3.RetryKVClient(w.client).Range(ctx, r)
	if err != nil {
		if outcomeOf(err) == history.Refused {
			w.rec.RefuseRead(read, err)
		}
		return nil, err
	}
	w.rec.FinishRead(read, history.Strip(answer), answer)
	return answer.Kvs, nil
}
