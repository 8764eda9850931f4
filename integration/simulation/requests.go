package simulation

import (
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/integration/internal/history"
	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

// author composes the requests of one client.
type author struct{ *client }

// oneIn is true once in n times.
func (c *client) oneIn(n int) bool { return c.rnd.IntN(n) == 0 }

// hot returns a key that all clients use for a while.
func (a author) hot() string {
	return fmt.Sprintf("%s%d", prefix, int(a.now()/(200*time.Millisecond))%a.w.plan.Workload.Keys)
}

// value returns a value without its token.
func (a author) value() []byte {
	if most := a.w.plan.Workload.Padding; most > 0 {
		return make([]byte, a.rnd.IntN(most))
	}
	return nil
}

func (a author) put(key string) *pb.PutRequest {
	r := &pb.PutRequest{Key: []byte(key), Value: a.value(), PrevKv: a.oneIn(3)}
	if l := a.lease(); l != 0 && a.oneIn(6) {
		r.Lease = l
	}
	if a.oneIn(8) && a.seen[key].Version > 0 {
		r.IgnoreLease, r.Lease = true, 0
	}
	return r
}

// lease returns a lease that a client holds, 0 if there is none.
func (a author) lease() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.held) == 0 {
		return 0
	}
	return a.held[a.rnd.IntN(len(a.held))].id
}

func (a author) delete(key, end string) *pb.DeleteRangeRequest {
	return &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: a.oneIn(3)}
}

// bounds returns a key, or a range of keys.
func (a author) bounds() (key, end string) {
	if a.oneIn(4) {
		return "\x00", "\x00"
	}
	return a.span()
}

// span is bounds without the keys of leases that other clients put.
func (a author) span() (key, end string) {
	switch a.rnd.IntN(3) {
	case 0:
		return a.key(), ""
	case 1:
		from, to := a.key(), a.key()
		if from == to {
			return from, ""
		}
		return min(from, to), max(from, to)
	default:
		return all.Key, all.End
	}
}

// past returns an old revision: often one of the newest, which are in one batch.
func (a author) past() int64 {
	newest := a.recorder.Newest()
	back := int64(6)
	if a.oneIn(3) {
		back = 60
	}
	if acknowledged, _ := a.recorder.Compactions(); a.oneIn(4) && acknowledged > 1 {
		return acknowledged - 1 + a.rnd.Int64N(3) // about the newest compaction
	}
	return max(1, newest-a.rnd.Int64N(back))
}

// read returns a read of keys, with options.
func (a author) read(options bool) *pb.RangeRequest {
	key, end := a.bounds()
	r := &pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)}
	if !options {
		return r
	}
	if a.oneIn(3) {
		r.Revision = a.past()
	}
	switch load := a.w.plan.Workload; {
	case load.Past: // of what the node can know although it leads no more
		r.Revision, r.Serializable = max(1, a.shown().revision-a.rnd.Int64N(12)), true
		return r
	case load.Counts && a.oneIn(2):
		r.CountOnly = true
		return r
	case load.Counts:
		r.Limit = 1 + a.rnd.Int64N(4)
		return r
	}
	switch a.rnd.IntN(8) {
	case 0:
		r.Limit = 1 + a.rnd.Int64N(4)
	case 1:
		r.CountOnly = true
	case 2:
		r.KeysOnly = true
	case 3:
		r.MinModRevision, r.MaxModRevision = a.past(), a.past()
	case 4:
		r.MinCreateRevision = a.past()
		r.SortOrder, r.SortTarget = pb.RangeRequest_SortOrder(a.rnd.IntN(3)), pb.RangeRequest_SortTarget(a.rnd.IntN(5))
	case 5:
		r.SortOrder, r.SortTarget = pb.RangeRequest_SortOrder(a.rnd.IntN(3)), pb.RangeRequest_SortTarget(a.rnd.IntN(5))
		r.Limit = a.rnd.Int64N(4)
	}
	return r
}

// compare returns a compare that often holds.
func (a author) compare(key string) *pb.Compare {
	known := a.seen[key]
	c := &pb.Compare{Key: []byte(key), Target: pb.Compare_CompareTarget(a.rnd.IntN(5)),
		Result: pb.Compare_CompareResult(a.rnd.IntN(4))}
	if a.oneIn(2) {
		c.Result = pb.Compare_EQUAL
	}
	if a.oneIn(8) {
		c.RangeEnd = []byte(all.End)
	}
	switch c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: known.Version}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: known.CreateRevision}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: known.ModRevision}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: []byte(known.Value)}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: known.Lease}
	}
	return c
}

// create puts a key if there is none, as Kubernetes does, and reads it otherwise.
func (a author) create(key string) *pb.TxnRequest {
	return &pb.TxnRequest{
		Compare: []*pb.Compare{{Key: []byte(key), Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{}}},
		Success: []*pb.RequestOp{history.RequestOp(&pb.PutRequest{Key: []byte(key), Value: a.value()})},
		Failure: []*pb.RequestOp{history.RequestOp(&pb.RangeRequest{Key: []byte(key)})},
	}
}

// createKeeping is create with an option that the key must exist for. So only the other branch can be executed.
func (a author) createKeeping(key string) *pb.TxnRequest {
	r := a.create(key)
	r.Success[0].GetRequestPut().IgnoreLease = true
	return r
}

// update puts or deletes a key if it is as it was seen last.
func (a author) update(key string) *pb.TxnRequest {
	r := a.create(key)
	r.Compare[0].TargetUnion = &pb.Compare_ModRevision{ModRevision: a.seen[key].ModRevision}
	if a.oneIn(3) {
		r.Success = []*pb.RequestOp{history.RequestOp(a.delete(key, ""))}
	}
	return r
}

// txn returns a transaction of any kind. With twice, it writes a key twice.
func (a author) txn() (r *pb.TxnRequest, twice bool) {
	free := make([]string, a.w.plan.Workload.Keys)
	for i, n := range a.rnd.Perm(len(free)) {
		free[i] = fmt.Sprintf("%s%d", prefix, n)
	}
	r = a.nested(&free, 2)
	if a.oneIn(20) && len(r.Success) > 0 {
		key := a.key()
		again := &pb.TxnRequest{Success: []*pb.RequestOp{history.RequestOp(a.put(key))}}
		if a.oneIn(2) {
			again = &pb.TxnRequest{Success: []*pb.RequestOp{history.RequestOp(again)}}
		}
		r.Success = append(r.Success, history.RequestOp(&pb.PutRequest{Key: []byte(key)}), history.RequestOp(again))
		twice = true
	}
	return r, twice
}

// wide puts many keys.
func (a author) wide() *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for i := range a.w.plan.Workload.Wide {
		r.Success = append(r.Success, history.RequestOp(&pb.PutRequest{Key: fmt.Appendf(nil, "wide/%02d", i)}))
	}
	return r
}

// nested returns a transaction that writes keys of free, which it takes out.
func (a author) nested(free *[]string, depth int) *pb.TxnRequest {
	r := &pb.TxnRequest{}
	for range a.rnd.IntN(3) {
		r.Compare = append(r.Compare, a.compare(a.key()))
	}
	other := slices.Clone(*free)
	r.Success = a.branch(free, depth)
	r.Failure = a.branch(&other, depth)
	*free = slices.DeleteFunc(*free, func(key string) bool { return !slices.Contains(other, key) })
	return r
}

func (a author) branch(free *[]string, depth int) (ops []*pb.RequestOp) {
	take := func() string {
		key := (*free)[0]
		*free = (*free)[1:]
		return key
	}
	for range a.rnd.IntN(4) {
		switch n := a.rnd.IntN(10); {
		case n < 3 || len(*free) == 0:
			ops = append(ops, history.RequestOp(a.read(a.oneIn(2))))
		case n < 7:
			ops = append(ops, history.RequestOp(a.put(take())))
		case n < 9:
			ops = append(ops, history.RequestOp(a.delete(take(), "")))
		case depth > 0:
			ops = append(ops, history.RequestOp(a.nested(free, depth-1)))
		}
	}
	return ops
}

// sign puts the token of a request before all values that it puts.
func sign(request proto.Message, token string) {
	switch r := request.(type) {
	case *pb.PutRequest:
		if !r.IgnoreValue {
			r.Value = append([]byte(token), r.Value...)
		}
	case *pb.TxnRequest:
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if put := op.GetRequestPut(); put != nil {
				sign(put, token)
			}
			if txn := op.GetRequestTxn(); txn != nil {
				sign(txn, token)
			}
		}
	}
}

// writes reports whether a request may change a key.
func writes(request proto.Message) bool {
	switch r := request.(type) {
	case *pb.RangeRequest:
		return false
	case *pb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *pb.RequestOp) bool {
			return op.GetRequestRange() == nil && (op.GetRequestTxn() == nil || writes(op.GetRequestTxn()))
		})
	default:
		return true
	}
}

// serializable reports whether a node may answer a request that only reads from its own state.
func serializable(request proto.Message) bool {
	switch r := request.(type) {
	case *pb.RangeRequest:
		return r.Serializable
	case *pb.TxnRequest:
		return !slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *pb.RequestOp) bool {
			return !op.GetRequestRange().GetSerializable()
		})
	}
	return false
}

// changed reports whether the answer to a request says that something changed.
func changed(answer proto.Message) bool {
	switch r := answer.(type) {
	case *pb.PutResponse:
		return true
	case *pb.DeleteRangeResponse:
		return r.Deleted > 0
	case *pb.TxnResponse:
		return slices.ContainsFunc(r.Responses, func(o *pb.ResponseOp) bool {
			switch o := o.Response.(type) {
			case *pb.ResponseOp_ResponsePut:
				return true
			case *pb.ResponseOp_ResponseDeleteRange:
				return changed(o.ResponseDeleteRange)
			case *pb.ResponseOp_ResponseTxn:
				return changed(o.ResponseTxn)
			}
			return false
		})
	}
	return false
}

// learn notes what a client has seen of its keys.
func (c *client) learn(answer proto.Message) {
	r, ok := answer.(*pb.RangeResponse)
	if !ok || len(r.Kvs) > 0 && len(r.Kvs[0].Value) == 0 {
		return
	}
	for _, kv := range r.Kvs {
		if known := c.seen[string(kv.Key)]; kv.ModRevision > known.ModRevision {
			c.seen[string(kv.Key)] = model.FromProto(kv)
		}
	}
}
