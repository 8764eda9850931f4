package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"
)

// errTwice is the error of a transaction that would write one key twice.
var errTwice = errors.New("a key is written twice")

// execution is one request that is executed as etcd does, on the state at one revision.
type execution struct {
	m      *model
	at     int64         // the state before the request
	own    map[string]KV // what the request has written; a deleted key has version 0
	past   []int64       // the old revisions that it has read
	events []Event
	answer proto.Message // its headers have revisions only
	err    error         // why etcd refuses the request
}

// execute executes a PutRequest, DeleteRangeRequest, TxnRequest or RangeRequest on the state at a revision.
func (m *model) execute(request proto.Message, at int64) *execution {
	x := &execution{m: m, at: at, own: make(map[string]KV)}
	switch r := request.(type) {
	case *pb.RangeRequest:
		x.answer = x.rangeOf(r)
	case *pb.PutRequest:
		x.answer, x.err = x.put(r)
	case *pb.DeleteRangeRequest:
		x.answer, x.err = x.deleteRange(r)
	case *pb.TxnRequest:
		var txn *pb.TxnResponse
		if txn, x.err = x.txn(r); x.err == nil {
			txn.Header = x.header()
			x.answer = txn
		}
	default:
		x.err = fmt.Errorf("a %T cannot be executed", request)
	}
	return x
}

// header has the revision of the store as the request has left it so far.
func (x *execution) header() *pb.ResponseHeader {
	if len(x.events) > 0 {
		return &pb.ResponseHeader{Revision: x.at + 1}
	}
	return &pb.ResponseHeader{Revision: x.at}
}

// list returns the keys of a range, in order, with what the request has written.
func (x *execution) list(r Range) []KV {
	kvs := x.m.scan(r, x.at)
	if len(x.own) == 0 {
		return kvs
	}
	kvs = slices.DeleteFunc(kvs, func(kv KV) bool {
		_, written := x.own[kv.Key]
		return written
	})
	for key, kv := range x.own {
		if r.Contains(key) && kv.Version > 0 {
			kvs = append(kvs, kv)
		}
	}
	slices.SortFunc(kvs, func(a, b KV) int { return strings.Compare(a.Key, b.Key) })
	return kvs
}

func (x *execution) get(key string) (KV, bool) {
	if kv, written := x.own[key]; written {
		return kv, kv.Version > 0
	}
	return x.m.get(key, x.at)
}

func (x *execution) rangeOf(r *pb.RangeRequest) *pb.RangeResponse {
	keys := Range{string(r.Key), string(r.RangeEnd)}
	kvs := x.list(keys)
	if r.Revision > 0 {
		kvs = x.m.scan(keys, r.Revision)
		x.past = append(x.past, r.Revision)
	}
	answer := &pb.RangeResponse{Header: x.header(), Count: int64(len(kvs))}
	if r.CountOnly {
		return answer
	}
	// Like etcd: without an order and bounds, the limit is one on keys, whatever the answer is sorted by.
	filtered := r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	if limit := int(r.Limit) + 1; r.Limit > 0 && r.SortOrder == pb.RangeRequest_NONE && !filtered && len(kvs) > limit {
		kvs = kvs[:limit]
	}
	kvs = slices.DeleteFunc(slices.Clone(kvs), func(kv KV) bool {
		return kv.ModRevision < r.MinModRevision || kv.CreateRevision < r.MinCreateRevision ||
			r.MaxModRevision != 0 && kv.ModRevision > r.MaxModRevision ||
			r.MaxCreateRevision != 0 && kv.CreateRevision > r.MaxCreateRevision
	})
	if r.SortTarget != pb.RangeRequest_KEY || r.SortOrder == pb.RangeRequest_DESCEND {
		slices.SortFunc(kvs, func(a, b KV) int {
			if r.SortOrder == pb.RangeRequest_DESCEND {
				a, b = b, a
			}
			return compareBy(r.SortTarget, a, b)
		})
	}
	if r.Limit > 0 && int64(len(kvs)) > r.Limit {
		kvs, answer.More = kvs[:r.Limit], true
	}
	for _, kv := range kvs {
		if r.KeysOnly {
			kv.Value = ""
			if r.SortTarget != pb.RangeRequest_VALUE {
				kv.Lease = 0
			}
		}
		answer.Kvs = append(answer.Kvs, toProto(kv))
	}
	return answer
}

func compareBy(target pb.RangeRequest_SortTarget, a, b KV) int {
	switch target {
	case pb.RangeRequest_VERSION:
		return cmp.Compare(a.Version, b.Version)
	case pb.RangeRequest_CREATE:
		return cmp.Compare(a.CreateRevision, b.CreateRevision)
	case pb.RangeRequest_MOD:
		return cmp.Compare(a.ModRevision, b.ModRevision)
	case pb.RangeRequest_VALUE:
		return strings.Compare(a.Value, b.Value)
	default:
		return strings.Compare(a.Key, b.Key)
	}
}

func (x *execution) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	next := x.at + 1
	kv := KV{Key: string(r.Key), Value: string(r.Value), Lease: r.Lease, CreateRevision: next, ModRevision: next,
		Version: 1}
	if _, written := x.own[kv.Key]; written {
		return nil, fmt.Errorf("%w: %q", errTwice, r.Key)
	}
	prev, exists := x.get(kv.Key)
	e := Event{}
	if exists {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
		e.Prev = &prev
	}
	if !exists && (r.IgnoreLease || r.IgnoreValue) {
		return nil, fmt.Errorf("there is no %q whose value or lease can be kept", r.Key)
	}
	if r.IgnoreValue {
		kv.Value = prev.Value
	}
	if r.IgnoreLease {
		kv.Lease = prev.Lease
	}
	e.KV = kv
	x.own[kv.Key] = kv
	x.events = append(x.events, e)
	answer := &pb.PutResponse{Header: x.header()}
	if r.PrevKv && exists {
		answer.PrevKv = toProto(prev)
	}
	return answer, nil
}

func (x *execution) deleteRange(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	answer := &pb.DeleteRangeResponse{}
	for _, prev := range x.list(Range{string(r.Key), string(r.RangeEnd)}) {
		if _, written := x.own[prev.Key]; written {
			return nil, fmt.Errorf("%w: %q", errTwice, prev.Key)
		}
		x.own[prev.Key] = KV{}
		x.events = append(x.events, Event{KV: KV{Key: prev.Key, ModRevision: x.at + 1}, Deleted: true, Prev: &prev})
		answer.Deleted++
		if r.PrevKv {
			answer.PrevKvs = append(answer.PrevKvs, toProto(prev))
		}
	}
	answer.Header = x.header()
	return answer, nil
}

// txn executes one branch. All compares, also those of nested transactions, see the state before the request.
func (x *execution) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: true}
	branch := r.Success
	for _, c := range r.Compare {
		if !x.m.compares(c, x.at) {
			answer.Succeeded, branch = false, r.Failure
			break
		}
	}
	for _, op := range branch {
		out := &pb.ResponseOp{}
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: x.rangeOf(op.RequestRange)}
		case *pb.RequestOp_RequestPut:
			a, err := x.put(op.RequestPut)
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponsePut{ResponsePut: a}
		case *pb.RequestOp_RequestDeleteRange:
			a, err := x.deleteRange(op.RequestDeleteRange)
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: a}
		case *pb.RequestOp_RequestTxn:
			a, err := x.txn(op.RequestTxn)
			if err != nil {
				return nil, err
			}
			out.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: a}
		}
		answer.Responses = append(answer.Responses, out)
	}
	return answer, nil
}

// compares reports whether a compare holds at a revision. All keys of a range must match. Without any key, a
// compare of the value fails, and other targets are compared with 0.
func (m *model) compares(c *pb.Compare, rev int64) bool {
	kvs := m.scan(Range{string(c.Key), string(c.RangeEnd)}, rev)
	if len(kvs) == 0 {
		return c.Target != pb.Compare_VALUE && matches(c, KV{})
	}
	return !slices.ContainsFunc(kvs, func(kv KV) bool { return !matches(c, kv) })
}

func matches(c *pb.Compare, kv KV) bool {
	var n int
	switch c.Target {
	case pb.Compare_VERSION:
		n = cmp.Compare(kv.Version, c.GetVersion())
	case pb.Compare_CREATE:
		n = cmp.Compare(kv.CreateRevision, c.GetCreateRevision())
	case pb.Compare_MOD:
		n = cmp.Compare(kv.ModRevision, c.GetModRevision())
	case pb.Compare_VALUE:
		n = strings.Compare(kv.Value, string(c.GetValue()))
	case pb.Compare_LEASE:
		n = cmp.Compare(kv.Lease, c.GetLease())
	}
	switch c.Result {
	case pb.Compare_EQUAL:
		return n == 0
	case pb.Compare_GREATER:
		return n > 0
	case pb.Compare_LESS:
		return n < 0
	default:
		return n != 0
	}
}

func toProto(kv KV) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{
		Key: []byte(kv.Key), Value: []byte(kv.Value), Lease: kv.Lease,
		CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version,
	}
}

// revisionsOf returns the old revisions that a request reads in any branch.
func revisionsOf(request proto.Message) (revisions []int64) {
	switch r := request.(type) {
	case *pb.RangeRequest:
		if r.Revision > 0 {
			return []int64{r.Revision}
		}
	case *pb.TxnRequest:
		for _, op := range slices.Concat(r.Success, r.Failure) {
			if o := op.GetRequestRange(); o != nil {
				revisions = append(revisions, revisionsOf(o)...)
			}
			if o := op.GetRequestTxn(); o != nil {
				revisions = append(revisions, revisionsOf(o)...)
			}
		}
	}
	return revisions
}

// puts reports whether a request puts a key in any branch.
func puts(request proto.Message) bool {
	switch r := request.(type) {
	case *pb.PutRequest:
		return true
	case *pb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *pb.RequestOp) bool {
			return op.GetRequestPut() != nil || op.GetRequestTxn() != nil && puts(op.GetRequestTxn())
		})
	}
	return false
}
