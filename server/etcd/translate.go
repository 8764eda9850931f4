package etcd

import (
	"bytes"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// Requests, from etcd's messages to the replica's. They have been checked, see
// validate.go; enumerations have the same values on both sides.

func keysOf(key, end []byte) mvcc.KeyRange {
	return mvcc.KeyRange{Key: shorten(key), End: shorten(end)}
}

// shorten cuts a key that is longer than any in the table. All those sort before or after it as they did, so that a
// request finds the same. The caches keep the keys of requests, and do not count their bytes.
func shorten(key []byte) []byte {
	if len(key) <= coder.MaxInternalKey {
		return key
	}
	return bytes.Clone(key[:coder.MaxInternalKey])
}

func rangeRequest(r *pb.RangeRequest) *mvcc.RangeRequest {
	return &mvcc.RangeRequest{
		KeyRange:          keysOf(r.Key, r.RangeEnd),
		Revision:          r.Revision,
		Limit:             r.Limit,
		SortOrder:         mvcc.SortOrder(r.SortOrder),
		SortBy:            mvcc.SortTarget(r.SortTarget),
		KeysOnly:          r.KeysOnly,
		CountOnly:         r.CountOnly,
		MinModRevision:    r.MinModRevision,
		MaxModRevision:    r.MaxModRevision,
		MinCreateRevision: r.MinCreateRevision,
		MaxCreateRevision: r.MaxCreateRevision,
	}
}

func putRequest(r *pb.PutRequest) *mvcc.PutRequest {
	return &mvcc.PutRequest{
		Key:         r.Key,
		Value:       r.Value,
		Lease:       r.Lease,
		PrevKV:      r.PrevKv,
		IgnoreValue: r.IgnoreValue,
		IgnoreLease: r.IgnoreLease,
	}
}

func deleteRequest(r *pb.DeleteRangeRequest) *mvcc.DeleteRequest {
	return &mvcc.DeleteRequest{
		KeyRange: keysOf(r.Key, r.RangeEnd),
		PrevKV:   r.PrevKv,
	}
}

func txnRequest(r *pb.TxnRequest) *mvcc.Txn {
	t := &mvcc.Txn{Then: ops(r.Success), Else: ops(r.Failure)}
	if len(r.Compare) > 0 {
		t.Compares = make([]mvcc.Compare, len(r.Compare))
	}
	for i, c := range r.Compare {
		t.Compares[i] = compare(c)
	}
	return t
}

func ops(requests []*pb.RequestOp) []mvcc.Op {
	if len(requests) == 0 {
		return nil
	}
	out := make([]mvcc.Op, len(requests))
	for i, op := range requests {
		switch r := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			out[i].Range = rangeRequest(r.RequestRange)
		case *pb.RequestOp_RequestPut:
			out[i].Put = putRequest(r.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			out[i].Delete = deleteRequest(r.RequestDeleteRange)
		case *pb.RequestOp_RequestTxn:
			out[i].Txn = txnRequest(r.RequestTxn)
		}
	}
	return out
}

// compare takes the operand that belongs to the target; one of another target
// counts as not given, that is 0 or empty, as in etcd.
func compare(c *pb.Compare) mvcc.Compare {
	out := mvcc.Compare{
		KeyRange: keysOf(c.Key, c.RangeEnd),
		Target:   mvcc.CompareTarget(c.Target),
		Result:   mvcc.CompareResult(c.Result),
	}
	switch c.Target {
	case pb.Compare_VERSION:
		out.Int = c.GetVersion()
	case pb.Compare_CREATE:
		out.Int = c.GetCreateRevision()
	case pb.Compare_MOD:
		out.Int = c.GetModRevision()
	case pb.Compare_LEASE:
		out.Int = c.GetLease()
	case pb.Compare_VALUE:
		out.Value = c.GetValue()
	}
	if holds, unknown := compareUnknown(c); unknown {
		out.Target, out.Result, out.Int, out.Value = holds.Target, holds.Result, holds.Int, nil
	}
	return out
}

// Compares that replace those with a target or result unknown to etcd. They compare
// the version, which is 0 for a missing key.
var (
	compareAlways = mvcc.Compare{Target: mvcc.CompareVersion, Result: mvcc.CompareGreater, Int: -1}
	compareNever  = mvcc.Compare{Target: mvcc.CompareVersion, Result: mvcc.CompareLess, Int: 0}
	compareExists = mvcc.Compare{Target: mvcc.CompareVersion, Result: mvcc.CompareGreater, Int: 0}
)

// compareUnknown returns what c means if etcd does not know its target or its
// result: an unknown target is equal to any operand, and an unknown result holds,
// though not for the value of a key that does not exist.
func compareUnknown(c *pb.Compare) (means mvcc.Compare, unknown bool) {
	_, target := pb.Compare_CompareTarget_name[int32(c.Target)]
	_, result := pb.Compare_CompareResult_name[int32(c.Result)]
	switch {
	case target && result:
		return mvcc.Compare{}, false
	case target && c.Target == pb.Compare_VALUE:
		return compareExists, true
	case !result || c.Result == pb.Compare_EQUAL:
		return compareAlways, true
	default:
		return compareNever, true
	}
}

// Results, from the replica's to etcd's. The header is the caller's.

func rangeResponse(h *pb.ResponseHeader, r *mvcc.RangeResult) *pb.RangeResponse {
	return &pb.RangeResponse{Header: h, Kvs: keyValues(r.Records), Count: r.Count, More: r.More}
}

func putResponse(h *pb.ResponseHeader, r *mvcc.PutResult) *pb.PutResponse {
	return &pb.PutResponse{Header: h, PrevKv: keyValue(r.Prev)}
}

func deleteResponse(h *pb.ResponseHeader, r *mvcc.DeleteResult) *pb.DeleteRangeResponse {
	return &pb.DeleteRangeResponse{Header: h, Deleted: r.Deleted, PrevKvs: keyValues(r.Prev)}
}

func txnResponse(h *pb.ResponseHeader, r *mvcc.TxnResult) *pb.TxnResponse {
	out := &pb.TxnResponse{Header: h, Succeeded: r.Succeeded}
	if len(r.Results) > 0 {
		out.Responses = make([]*pb.ResponseOp, len(r.Results))
	}
	for i := range r.Results {
		out.Responses[i] = responseOp(&r.Results[i])
	}
	return out
}

// responseOp gives the inner header its revision; that of a nested transaction
// is empty.
func responseOp(r *mvcc.OpResult) *pb.ResponseOp {
	switch {
	case r.Range != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{
			ResponseRange: rangeResponse(innerHeader(r.Range.Revision), r.Range)}}
	case r.Put != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{
			ResponsePut: putResponse(innerHeader(r.Put.Revision), r.Put)}}
	case r.Delete != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{
			ResponseDeleteRange: deleteResponse(innerHeader(r.Delete.Revision), r.Delete)}}
	case r.Txn != nil:
		return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{
			ResponseTxn: txnResponse(&pb.ResponseHeader{}, r.Txn)}}
	}
	return &pb.ResponseOp{}
}

// keyValue returns r as etcd has it, nil for nil. The message shares r's bytes,
// which must not be changed.
func keyValue(r *coder.Record) *mvccpb.KeyValue {
	if r == nil {
		return nil
	}
	kv := &mvccpb.KeyValue{}
	fillKeyValue(kv, r)
	return kv
}

// keyValues is keyValue for a list, in one allocation for all of them.
func keyValues(rs []*coder.Record) []*mvccpb.KeyValue {
	if len(rs) == 0 {
		return nil
	}
	kvs := make([]mvccpb.KeyValue, len(rs))
	out := make([]*mvccpb.KeyValue, len(rs))
	for i, r := range rs {
		fillKeyValue(&kvs[i], r)
		out[i] = &kvs[i]
	}
	return out
}

func fillKeyValue(kv *mvccpb.KeyValue, r *coder.Record) {
	kv.Key, kv.Value = r.Key, r.Value
	kv.CreateRevision, kv.ModRevision = r.CreateRevision, r.ModRevision
	kv.Version, kv.Lease = r.Version, r.Lease
}
