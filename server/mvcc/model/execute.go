package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// Execution is what a request does on the state at one revision.
type Execution struct {
	Answer proto.Message // its headers have revisions only
	Events []Event       // of the next revision; none if the request changes nothing
	Past   []int64       // the old revisions that it has read
	Err    error         // why etcd refuses the request

	s         *State
	at        int64         // the state before the request
	own       map[string]KV // what the request has written; a deleted key has version 0
	succeeded map[*pb.TxnRequest]bool
}

// Execute executes a PutRequest, DeleteRangeRequest, TxnRequest or RangeRequest on the state at a revision, which it
// does not change. Of what is wrong with a request in itself it judges only that a transaction writes a key twice.
func (s *State) Execute(request proto.Message, at int64) *Execution {
	x := &Execution{s: s, at: at, own: make(map[string]KV), succeeded: make(map[*pb.TxnRequest]bool)}
	switch r := request.(type) {
	case *pb.RangeRequest:
		if r.Revision >= 0 { // a negative one is the newest, but not in a transaction
			x.Err = x.checkRange(r)
		}
		if x.Err == nil {
			x.Answer = x.rangeOf(r)
		}
	case *pb.PutRequest:
		if x.Err = x.checkPut(r); x.Err == nil {
			x.Answer, x.Err = x.put(r)
		}
	case *pb.DeleteRangeRequest:
		x.Answer, x.Err = x.deleteRange(r)
	case *pb.TxnRequest:
		x.compare(r)
		var txn *pb.TxnResponse
		if x.Err = x.checkChosen(r); x.Err == nil {
			txn, x.Err = x.txn(r)
		}
		if x.Err == nil {
			txn.Header = x.header()
			x.Answer = txn
		}
	default:
		x.Err = fmt.Errorf("a %T cannot be executed", request)
	}
	return x
}

// Revoke returns the events of the revocation of a lease at the newest revision.
func (s *State) Revoke(lease int64) []Event {
	x := &Execution{s: s, at: s.revision, own: make(map[string]KV)}
	for _, key := range s.Attached(lease) {
		kv, _ := s.Get(key, s.revision)
		x.remove(kv)
	}
	return x.Events
}

// header has the revision of the store as the request has left it so far.
func (x *Execution) header() *pb.ResponseHeader {
	if len(x.Events) > 0 {
		return &pb.ResponseHeader{Revision: x.at + 1}
	}
	return &pb.ResponseHeader{Revision: x.at}
}

// list returns the keys of a range, in order, with what the request has written.
func (x *Execution) list(r Range) []KV {
	kvs := x.s.List(r, x.at)
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

// checkRange judges the revision that is asked for.
func (x *Execution) checkRange(r *pb.RangeRequest) error {
	switch {
	case r.Revision > x.at:
		return rpctypes.ErrGRPCFutureRev
	case r.Revision != 0 && r.Revision < x.s.Compacted:
		return rpctypes.ErrGRPCCompacted
	}
	return nil
}

func (x *Execution) rangeOf(r *pb.RangeRequest) *pb.RangeResponse {
	keys := Range{string(r.Key), string(r.RangeEnd)}
	kvs := x.list(keys)
	if r.Revision > 0 {
		kvs = x.s.List(keys, r.Revision)
		x.Past = append(x.Past, r.Revision)
	}
	answer := &pb.RangeResponse{Header: x.header(), Count: int64(len(kvs))}
	if r.CountOnly {
		return answer
	}
	// Like etcd: without an order and bounds, the limit is one on keys, whatever the answer is sorted by.
	filtered := r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
	if r.Limit > 0 && r.SortOrder == pb.RangeRequest_NONE && !filtered && int64(len(kvs)) > r.Limit {
		kvs = kvs[:r.Limit+1]
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
		answer.Kvs = append(answer.Kvs, kv.Proto())
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

// checkPut judges a put on the state before the request.
func (x *Execution) checkPut(r *pb.PutRequest) error {
	if r.Lease != 0 && x.s.LeaseExists != nil && !x.s.LeaseExists(r.Lease) {
		return rpctypes.ErrGRPCLeaseNotFound
	}
	if _, exists := x.s.Get(string(r.Key), x.at); !exists && (r.IgnoreLease || r.IgnoreValue) {
		return rpctypes.ErrGRPCKeyNotFound
	}
	return nil
}

func (x *Execution) put(r *pb.PutRequest) (*pb.PutResponse, error) {
	next := x.at + 1
	kv := KV{Key: string(r.Key), Value: string(r.Value), Lease: r.Lease, CreateRevision: next, ModRevision: next,
		Version: 1}
	if _, written := x.own[kv.Key]; written {
		return nil, rpctypes.ErrGRPCDuplicateKey
	}
	prev, exists := x.s.Get(kv.Key, x.at)
	e := Event{}
	if exists {
		kv.CreateRevision, kv.Version = prev.CreateRevision, prev.Version+1
		e.Prev = &prev
	}
	if r.IgnoreValue {
		kv.Value = prev.Value
	}
	if r.IgnoreLease {
		kv.Lease = prev.Lease
	}
	e.KV = kv
	x.own[kv.Key] = kv
	x.Events = append(x.Events, e)
	answer := &pb.PutResponse{Header: x.header()}
	if r.PrevKv && exists {
		answer.PrevKv = prev.Proto()
	}
	return answer, nil
}

func (x *Execution) deleteRange(r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	answer := &pb.DeleteRangeResponse{}
	for _, prev := range x.list(Range{string(r.Key), string(r.RangeEnd)}) {
		if _, written := x.own[prev.Key]; written {
			return nil, rpctypes.ErrGRPCDuplicateKey
		}
		x.remove(prev)
		answer.Deleted++
		if r.PrevKv {
			answer.PrevKvs = append(answer.PrevKvs, prev.Proto())
		}
	}
	answer.Header = x.header()
	return answer, nil
}

func (x *Execution) remove(prev KV) {
	x.own[prev.Key] = KV{}
	x.Events = append(x.Events, Event{KV: KV{Key: prev.Key, ModRevision: x.at + 1}, Deleted: true, Prev: &prev})
}

// compare decides on a transaction, and on those nested in its branch. All compares see the state before the request.
func (x *Execution) compare(r *pb.TxnRequest) {
	x.succeeded[r] = !slices.ContainsFunc(r.Compare, func(c *pb.Compare) bool { return !x.s.holds(c, x.at) })
	for _, op := range x.chosen(r) {
		if nested := op.GetRequestTxn(); nested != nil {
			x.compare(nested)
		}
	}
}

// chosen returns the branch that a transaction takes.
func (x *Execution) chosen(r *pb.TxnRequest) []*pb.RequestOp {
	if x.succeeded[r] {
		return r.Success
	}
	return r.Failure
}

// checkChosen judges the chosen operations on the state before the transaction, before any is executed.
func (x *Execution) checkChosen(r *pb.TxnRequest) (err error) {
	for _, op := range x.chosen(r) {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			err = x.checkRange(op.RequestRange)
		case *pb.RequestOp_RequestPut:
			err = x.checkPut(op.RequestPut)
		case *pb.RequestOp_RequestTxn:
			err = x.checkChosen(op.RequestTxn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// txn executes the chosen branch.
func (x *Execution) txn(r *pb.TxnRequest) (*pb.TxnResponse, error) {
	answer := &pb.TxnResponse{Header: &pb.ResponseHeader{}, Succeeded: x.succeeded[r]}
	for _, op := range x.chosen(r) {
		out := &pb.ResponseOp{}
		var err error
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			out.Response = &pb.ResponseOp_ResponseRange{ResponseRange: x.rangeOf(op.RequestRange)}
		case *pb.RequestOp_RequestPut:
			o := &pb.ResponseOp_ResponsePut{}
			o.ResponsePut, err = x.put(op.RequestPut)
			out.Response = o
		case *pb.RequestOp_RequestDeleteRange:
			o := &pb.ResponseOp_ResponseDeleteRange{}
			o.ResponseDeleteRange, err = x.deleteRange(op.RequestDeleteRange)
			out.Response = o
		case *pb.RequestOp_RequestTxn:
			o := &pb.ResponseOp_ResponseTxn{}
			o.ResponseTxn, err = x.txn(op.RequestTxn)
			out.Response = o
		}
		if err != nil {
			return nil, err
		}
		answer.Responses = append(answer.Responses, out)
	}
	return answer, nil
}

// holds reports whether a compare holds at a revision. All keys of a range must match. Without any key, a compare of
// the value fails, and other targets are compared with 0.
func (s *State) holds(c *pb.Compare, rev int64) bool {
	kvs := s.List(Range{string(c.Key), string(c.RangeEnd)}, rev)
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
