package compat

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

func stepRange(w *world, r *rand.Rand) { w.ask("KV/Range", w.anyRangeRequest(r)) }

func (w *world) anyRangeRequest(r *rand.Rand) *pb.RangeRequest {
	q := &pb.RangeRequest{
		KeysOnly:     chance(r, 4),
		CountOnly:    chance(r, 6),
		Serializable: chance(r, 4),
	}
	q.Key, q.RangeEnd = anyRange(r)
	if chance(r, 2) {
		q.Limit = one[int64](r, 1, 2, 3, 5, 10, 25, -1, math.MaxInt64, math.MaxInt64-1)
	}
	if chance(r, 3) {
		q.Revision = w.anyRevision(r)
	}
	if chance(r, 2) {
		q.SortOrder = pb.RangeRequest_SortOrder(r.IntN(3))
		q.SortTarget = pb.RangeRequest_SortTarget(r.IntN(5))
	}
	if chance(r, 60) {
		q.SortOrder = pb.RangeRequest_SortOrder(one[int32](r, 3, -1))
	}
	if chance(r, 60) {
		q.SortTarget = pb.RangeRequest_SortTarget(one[int32](r, 5, -1))
	}
	for _, bound := range []*int64{&q.MinModRevision, &q.MaxModRevision, &q.MinCreateRevision, &q.MaxCreateRevision} {
		if chance(r, 10) {
			*bound = one(r, w.pastRevision(r), w.pastRevision(r), w.pastRevision(r), w.revision+1, 1, -1)
		}
	}
	return q
}

func stepRangeStream(w *world, r *rand.Rand) {
	q := w.anyRangeRequest(r)
	if q.SortTarget != pb.RangeRequest_KEY && q.SortOrder == pb.RangeRequest_NONE {
		q.SortTarget = pb.RangeRequest_KEY // accepted difference, see docs/compatibility.md
	}
	if !chance(r, 8) { // most of what Range knows is refused here
		q.SortTarget, q.SortOrder = pb.RangeRequest_KEY, one(r, pb.RangeRequest_NONE, pb.RangeRequest_ASCEND)
		q.MinModRevision, q.MaxModRevision, q.MinCreateRevision, q.MaxCreateRevision = 0, 0, 0, 0
	}
	w.ask("KV/RangeStream", q)
}

func stepPut(w *world, r *rand.Rand) { w.ask("KV/Put", w.anyPut(r)) }

func (w *world) anyPut(r *rand.Rand) *pb.PutRequest {
	p := &pb.PutRequest{Key: anyKey(r), Value: anyValue(r), Lease: w.anyLease(r), PrevKv: chance(r, 3)}
	if chance(r, 8) {
		p.IgnoreValue = true
		if !chance(r, 6) {
			p.Value = nil
		}
	}
	if chance(r, 8) {
		p.IgnoreLease = true
		if !chance(r, 6) {
			p.Lease = 0
		}
	}
	return p
}

func stepDelete(w *world, r *rand.Rand) {
	d := anyDelete(r)
	if len(d.RangeEnd) > 0 && !chance(r, 3) {
		d.RangeEnd = nil // or else little would be left to look at
	}
	w.ask("KV/DeleteRange", d)
}

func anyDelete(r *rand.Rand) *pb.DeleteRangeRequest {
	d := &pb.DeleteRangeRequest{PrevKv: chance(r, 2)}
	d.Key, d.RangeEnd = anyRange(r)
	return d
}

func stepTxn(w *world, r *rand.Rand) {
	if chance(r, 40) {
		w.ask("KV/Txn", largeTxn(r))
		return
	}
	for {
		if t := w.anyTxn(r, 1+r.IntN(3)); !acceptedByAccident(t) {
			w.ask("KV/Txn", t)
			return
		}
	}
}

// anyTxn draws a transaction with others in it down to the depth given.
func (w *world) anyTxn(r *rand.Rand, depth int) *pb.TxnRequest {
	t := &pb.TxnRequest{}
	for range r.IntN(3) {
		t.Compare = append(t.Compare, w.anyCompare(r))
	}
	for _, branch := range []*[]*pb.RequestOp{&t.Success, &t.Failure} {
		for range r.IntN(5) {
			*branch = append(*branch, w.anyOp(r, depth))
		}
	}
	return t
}

func (w *world) anyOp(r *rand.Rand, depth int) *pb.RequestOp {
	switch n := r.IntN(100); {
	case n < 1:
		return &pb.RequestOp{}
	case n < 30:
		return opRange(w.anyRangeRequest(r))
	case n < 65:
		return opPut(w.anyPut(r))
	case n < 80 || depth <= 1:
		d := anyDelete(r)
		if len(d.RangeEnd) > 0 && !chance(r, 4) {
			d.RangeEnd = nil
		}
		return opDelete(d)
	default:
		return opTxn(w.anyTxn(r, depth-1))
	}
}

func opRange(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func opPut(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

func opDelete(r *pb.DeleteRangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
}

func opTxn(r *pb.TxnRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
}

func (w *world) anyCompare(r *rand.Rand) *pb.Compare {
	c := &pb.Compare{Result: pb.Compare_CompareResult(r.IntN(4)), Key: anyKey(r)}
	if len(c.Key) == 0 && !chance(r, 5) {
		c.Key = []byte("a")
	}
	if chance(r, 3) {
		c.Key, c.RangeEnd = anyRange(r)
	}
	number := one(r, 0, 1, 2, w.pastRevision(r), w.revision, w.revision+1, -1)
	switch c.Target = pb.Compare_CompareTarget(r.IntN(5)); c.Target {
	case pb.Compare_VERSION:
		c.TargetUnion = &pb.Compare_Version{Version: number}
	case pb.Compare_CREATE:
		c.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: number}
	case pb.Compare_MOD:
		c.TargetUnion = &pb.Compare_ModRevision{ModRevision: number}
	case pb.Compare_VALUE:
		c.TargetUnion = &pb.Compare_Value{Value: anyValue(r)}
	case pb.Compare_LEASE:
		c.TargetUnion = &pb.Compare_Lease{Lease: w.anyLease(r)}
	}
	if chance(r, 60) {
		c.Target = pb.Compare_CompareTarget(one[int32](r, 5, -1))
	}
	if chance(r, 60) {
		c.Result = pb.Compare_CompareResult(one[int32](r, 4, -1))
	}
	if chance(r, 12) { // a union that is not set, or not that of the target
		switch r.IntN(3) {
		case 0:
			c.TargetUnion = nil
		case 1:
			c.TargetUnion = &pb.Compare_Version{Version: 1}
		default:
			c.TargetUnion = &pb.Compare_Value{Value: []byte("1")}
		}
	}
	return c
}

// largeTxn is one about as large as is allowed, or too large.
func largeTxn(r *rand.Rand) *pb.TxnRequest {
	outer, inner := one(r, 1, 2, 127, 128, 129), one(r, 1, 2, 126, 127, 128)
	nested := &pb.TxnRequest{}
	for i := range inner {
		nested.Success = append(nested.Success, opPut(&pb.PutRequest{Key: fmt.Appendf(nil, "m/%02d", i)}))
	}
	t := &pb.TxnRequest{Success: []*pb.RequestOp{opTxn(nested)}}
	for i := range outer - 1 {
		t.Success = append(t.Success, opRange(&pb.RangeRequest{Key: fmt.Appendf(nil, "k/%02d", i)}))
	}
	return t
}

// acceptedByAccident reports whether t puts a key that it also deletes in a way
// that etcd may fail to see: a delete of all keys starting at some key, or two sibling
// nested transactions. See docs/compatibility.md.
func acceptedByAccident(t *pb.TxnRequest) bool {
	return slices.ContainsFunc([][]*pb.RequestOp{t.Success, t.Failure}, func(ops []*pb.RequestOp) bool {
		var puts [][]byte
		var deletes []*pb.DeleteRangeRequest
		nested := 0
		var walk func(ops []*pb.RequestOp, inside bool)
		walk = func(ops []*pb.RequestOp, inside bool) {
			for _, op := range ops {
				if d := op.GetRequestDeleteRange(); d != nil && (inside || bytes.Equal(d.RangeEnd, []byte{0})) {
					deletes = append(deletes, d)
				}
				if p := op.GetRequestPut(); p != nil {
					puts = append(puts, p.Key)
				}
				if n := op.GetRequestTxn(); n != nil {
					nested++
					walk(n.Success, true)
					walk(n.Failure, true)
				}
			}
		}
		walk(ops, false)
		for _, d := range deletes {
			fromKey := bytes.Equal(d.RangeEnd, []byte{0})
			if !fromKey && nested < 2 {
				continue
			}
			for _, p := range puts {
				if bytes.Equal(p, d.Key) || bytes.Compare(p, d.Key) >= 0 && (fromKey || bytes.Compare(p, d.RangeEnd) < 0) {
					return true
				}
			}
		}
		return false
	})
}

// stepCompact is alone with the watches that catch up: whether these still get
// what is compacted is a matter of time.
func stepCompact(w *world, r *rand.Rand) {
	w.settle()
	if w.failed() {
		return
	}
	rev := w.anyRevision(r)
	if chance(r, 2) {
		rev = w.compacted + r.Int64N(max(1, (w.revision-w.compacted)/3))
	}
	w.compact(rev, chance(r, 2))
}

func (w *world) compact(rev int64, physical bool) answer {
	a := w.ask("KV/Compact", &pb.CompactionRequest{Revision: rev, Physical: physical})
	if a.err == nil {
		w.compacted = rev
		w.compactions[rev] = true
	}
	return a
}

// stepBigTxn puts, replaces and deletes values that do not fit one response of a
// watch, before the eyes of watches that allow fragments and of one that does not.
func stepBigTxn(w *world, r *rand.Rand) {
	w.settle()
	i := r.IntN(streamsOpen)
	for _, fragment := range []bool{true, false} {
		w.watch(i, &pb.WatchCreateRequest{Key: []byte("big/"), RangeEnd: []byte("big0"), PrevKv: true, Fragment: fragment})
	}
	size := one(r, 300, 400, 480) << 10
	for round := range 2 {
		t := &pb.TxnRequest{}
		for k := range 3 {
			value := bytes.Repeat([]byte{byte('a' + round)}, size+r.IntN(1000))
			t.Success = append(t.Success, opPut(&pb.PutRequest{Key: fmt.Appendf(nil, "big/%d", k), Value: value}))
		}
		w.ask("KV/Txn", t)
	}
	w.ask("KV/RangeStream", &pb.RangeRequest{Key: []byte("a"), RangeEnd: []byte("z")})
	w.ask("KV/DeleteRange", &pb.DeleteRangeRequest{Key: []byte("big/"), RangeEnd: []byte("big0")})
	w.settle()
}
