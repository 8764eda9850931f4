package compat

import (
	"bytes"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
)

func TestPutAndDelete(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	testClaims(t, nil, []claim{
		{"an empty key is refused", func(c *checker) {
			c.refused("KV/Put", &pb.PutRequest{}, codes.InvalidArgument, "etcdserver: key is not provided")
			c.refused("KV/DeleteRange", &pb.DeleteRangeRequest{}, codes.InvalidArgument, "etcdserver: key is not provided")
		}},
		{"ignore_value with a value is refused", func(c *checker) {
			c.refused("KV/Put", &pb.PutRequest{Key: b("a"), Value: b("v"), IgnoreValue: true}, codes.InvalidArgument,
				"etcdserver: value is provided")
		}},
		{"ignore_lease with a lease is refused", func(c *checker) {
			c.refused("KV/Put", &pb.PutRequest{Key: b("a"), Lease: 3, IgnoreLease: true}, codes.InvalidArgument,
				"etcdserver: lease is provided")
		}},
		{"ignore_value and ignore_lease of an absent key are refused", func(c *checker) {
			c.refused("KV/Put", &pb.PutRequest{Key: b("a"), IgnoreValue: true}, codes.InvalidArgument,
				"etcdserver: key not found")
			c.refused("KV/Put", &pb.PutRequest{Key: b("a"), Value: b("v"), IgnoreLease: true}, codes.InvalidArgument,
				"etcdserver: key not found")
		}},
		{"a lease that does not exist is refused", func(c *checker) {
			c.refused("KV/Put", &pb.PutRequest{Key: b("a"), Lease: 77}, codes.NotFound, "etcdserver: requested lease not found")
		}},
		{"a put without ignore_lease replaces the lease, lease 0 detaches", func(c *checker) {
			c.grant(1, 3600)
			c.grant(2, 7200)
			for _, lease := range []int64{1, 2, 0, 2} {
				c.kv("Put", &pb.PutRequest{Key: b("a"), Lease: lease})
				kv := c.get("a")
				c.holds(kv.GetLease() == lease, "lease %d: %v", lease, kv)
				for _, id := range []int64{1, 2} {
					r := response[pb.LeaseTimeToLiveResponse](c.ask("Lease/LeaseTimeToLive",
						&pb.LeaseTimeToLiveRequest{ID: id, Keys: true}))
					c.holds((len(r.Keys) == 1) == (id == lease), "%v", r)
				}
			}
			c.kv("Put", &pb.PutRequest{Key: b("a"), Value: b("kept lease"), IgnoreLease: true})
			c.holds(c.get("a").GetLease() == 2, "ignore_lease keeps it")
			c.kv("Put", &pb.PutRequest{Key: b("a"), IgnoreValue: true})
			c.holds(c.get("a").GetLease() == 0 && string(c.get("a").GetValue()) == "kept lease", "ignore_value alone detaches")
			c.revoke(2)
			c.holds(c.get("a") != nil, "the key is free of the lease")
		}},
		{"deleting nothing does not raise the revision", func(c *checker) {
			c.put("a", "")
			before := c.revision
			c.del("b", "")
			c.del("b", "z")
			c.del("z", "a")
			c.then(opsDelete("b", ""))
			c.holds(c.revision == before, "revision %d, was %d", c.revision, before)
		}},
		{"created again, a key has version 1", func(c *checker) {
			c.put("a", "1")
			c.put("a", "2")
			c.del("a", "")
			c.put("a", "3")
			kv := c.get("a")
			c.holds(kv.GetVersion() == 1 && kv.GetCreateRevision() == kv.GetModRevision(), "%v", kv)
			c.then(opsDelete("a", ""))
			c.put("a", "4")
			c.get("a")
		}},
		{"a delete event's kv has key and mod_revision only", func(c *checker) {
			c.grant(1, 3600)
			c.kv("Put", &pb.PutRequest{Key: b("a"), Value: b("v"), Lease: 1})
			c.watch(0, &pb.WatchCreateRequest{Key: b("a")})
			c.del("a", "")
			c.settle()
			for _, e := range c.lastEvents() {
				c.holds(e.Kv.CreateRevision == 0 && e.Kv.Version == 0 && e.Kv.Lease == 0 && e.Kv.Value == nil &&
					e.Kv.ModRevision > 0, "%v", e)
			}
			c.holds(len(c.lastEvents()) == 1, "%d events", len(c.lastEvents()))
		}},
		{"prev_kv", func(c *checker) {
			for range 3 {
				c.kv("Put", &pb.PutRequest{Key: b("a"), Value: b("v"), PrevKv: true})
			}
			c.put("b", "1")
			r := c.del("a", "c")
			c.holds(r.Deleted == 2 && len(r.PrevKvs) == 2, "%v", r)
			c.kv("DeleteRange", &pb.DeleteRangeRequest{Key: b("a")})
			c.kv("Put", &pb.PutRequest{Key: b("a"), PrevKv: true})
		}},
	})
}

func TestTxn(t *testing.T) {
	b := func(s string) []byte { return []byte(s) }
	duplicate := func(c *checker, ops ...*pb.RequestOp) {
		c.refused("KV/Txn", &pb.TxnRequest{Success: ops}, codes.InvalidArgument,
			"etcdserver: duplicate key given in txn request")
		c.refused("KV/Txn", &pb.TxnRequest{Failure: ops}, codes.InvalidArgument,
			"etcdserver: duplicate key given in txn request")
	}
	nested := func(then, otherwise []*pb.RequestOp) *pb.RequestOp {
		return opTxn(&pb.TxnRequest{Success: then, Failure: otherwise})
	}
	ops := func(o ...*pb.RequestOp) []*pb.RequestOp { return o }
	testClaims(t, nil, []claim{
		{"two puts of a key, or a put and a delete of it, in one branch are refused", func(c *checker) {
			duplicate(c, opsPut("a", "1"), opsPut("a", "1"))
			duplicate(c, opsPut("a", "1"), opsDelete("a", ""))
			duplicate(c, opsDelete("a", "c"), opsPut("b", "1"))
			duplicate(c, opsPut("a", ""), nested(ops(opsPut("a", "")), nil))
			duplicate(c, nested(nil, ops(opsPut("a", ""))), opsPut("a", ""))
			duplicate(c, nested(ops(opsPut("a", "")), nil), nested(nil, ops(opsPut("a", ""))))
			duplicate(c, nested(ops(opsPut("b", "")), nil), opsDelete("a", "c"))
			duplicate(c, nested(ops(opsDelete("a", "c")), nil), opsPut("b", ""))
		}},
		{"then and else may overlap, and so may deletes", func(c *checker) {
			c.put("b", "1")
			c.holds(c.txn(&pb.TxnRequest{Success: ops(opsPut("a", "1")),
				Failure: ops(opsPut("a", "2"), opsDelete("b", ""))}).Header != nil, "accepted")
			c.holds(c.then(nested(ops(opsPut("a", "1")), ops(opsPut("a", "2")))).Header != nil, "accepted")
			r := c.then(opsDelete("a", "c"), opsDelete("b", "d"))
			c.holds(r.Responses[0].GetResponseDeleteRange().GetDeleted() == 2 &&
				r.Responses[1].GetResponseDeleteRange().GetDeleted() == 0, "%v", r)
		}},
		{"a put in a nested transaction and a delete in a later one are accepted, if one of them is not executed",
			func(c *checker) {
				c.put("b", "1")
				no := []*pb.Compare{{Key: b("none"), TargetUnion: &pb.Compare_Version{Version: 1}}}
				skipped := func(o ...*pb.RequestOp) *pb.RequestOp { return opTxn(&pb.TxnRequest{Compare: no, Success: o}) }
				c.watch(0, &pb.WatchCreateRequest{Key: b("a"), RangeEnd: b("z"), PrevKv: true})
				c.holds(c.then(nested(ops(opsPut("b", "2")), nil), skipped(opsDelete("a", "c"))).Header != nil, "a put")
				c.holds(c.then(skipped(opsPut("b", "3")), nested(nil, nil), nested(ops(opsDelete("a", "c")), nil)).Header != nil,
					"a delete")
				c.holds(c.then(nested(ops(opsPut("b", "4")), nil), nested(ops(skipped(opsDelete("b", ""))), nil)).Header != nil,
					"deeper")
				duplicate(c, nested(ops(opsDelete("b", "")), nil), skipped(opsPut("b", "5")))
				c.get("b")
				c.settle()
			}},
		{"more than 128 compares or operations are refused", func(c *checker) {
			gets := func(n int) (o []*pb.RequestOp) {
				for range n {
					o = append(o, opsGet("a", ""))
				}
				return o
			}
			compares := func(n int) (o []*pb.Compare) {
				for range n {
					o = append(o, &pb.Compare{Key: b("a")})
				}
				return o
			}
			for _, q := range []*pb.TxnRequest{{Success: gets(129)}, {Failure: gets(129)}, {Compare: compares(129)}} {
				c.refused("KV/Txn", q, codes.InvalidArgument, "etcdserver: too many operations in txn request")
			}
			c.holds(c.txn(&pb.TxnRequest{Success: gets(128), Failure: gets(128), Compare: compares(128)}).Header != nil,
				"128 of each are allowed")
			// A nested transaction gets what is left.
			c.holds(c.then(append(gets(27), nested(gets(100), nil))...).Header != nil, "28 and 100")
			c.refused("KV/Txn", &pb.TxnRequest{Success: append(gets(27), nested(gets(101), nil))}, codes.InvalidArgument,
				"etcdserver: too many operations in txn request")
		}},
		{"an operation that is not set is refused", func(c *checker) {
			c.refused("KV/Txn", &pb.TxnRequest{Success: ops(&pb.RequestOp{})}, codes.InvalidArgument,
				"etcdserver: key not found")
		}},
		{"an empty transaction succeeds", func(c *checker) { c.holds(c.txn(&pb.TxnRequest{}).Succeeded, "") }},
		{"later operations see earlier writes", func(c *checker) {
			c.put("a", "0")
			c.put("b", "0")
			r := c.then(opsGet("a", ""), opsPut("a", "1"), opsGet("a", ""), opsDelete("b", ""), opsGet("a", "z"),
				opsGet("b", ""))
			c.holds(string(r.Responses[2].GetResponseRange().GetKvs()[0].Value) == "1", "%v", r)
			c.holds(r.Responses[4].GetResponseRange().GetCount() == 1, "%v", r)
		}},
		{"an inner range has header revision N before the first write and N+1 after it", func(c *checker) {
			c.put("a", "0")
			n := c.revision
			r := c.then(opsGet("a", ""), opsPut("b", "1"), opsGet("a", ""), opsDelete("none", ""), opsPut("c", ""),
				opsGet("b", ""))
			c.holds(r.Responses[0].GetResponseRange().Header.Revision == n &&
				r.Responses[2].GetResponseRange().Header.Revision == n+1, "%v", r)
			c.then(opsDelete("none", ""), opsGet("a", ""), opsDelete("a", ""), opsGet("a", ""))
		}},
		{"the options of operations are the same in both branches", func(c *checker) {
			for range 3 {
				c.put("k1", "b")
				c.put("k2", "a")
			}
			c.grant(1, 3600)
			c.kv("Put", &pb.PutRequest{Key: b("k3"), Value: b("c"), Lease: 1})
			old := c.revision - 2
			every := func(f func() *pb.RequestOp) { // in both branches, and in a transaction inside each
				no := []*pb.Compare{{Key: b("k1"), Target: pb.Compare_VERSION}}
				c.txn(&pb.TxnRequest{Success: ops(f())})
				c.txn(&pb.TxnRequest{Compare: no, Failure: ops(f())})
				c.txn(&pb.TxnRequest{Success: ops(opTxn(&pb.TxnRequest{Compare: no, Failure: ops(f())}))})
				c.txn(&pb.TxnRequest{Compare: no, Failure: ops(opTxn(&pb.TxnRequest{Success: ops(f())}))})
			}
			for _, q := range []*pb.RangeRequest{
				{}, {Limit: 1}, {Limit: 3}, {Revision: old}, {Revision: -1}, {Serializable: true}, {KeysOnly: true},
				{CountOnly: true},
				{MinModRevision: old}, {MaxModRevision: old}, {MinCreateRevision: old}, {MaxCreateRevision: old},
			} {
				every(func() *pb.RequestOp {
					q.Key, q.RangeEnd = b("k"), b("l")
					return opRange(q)
				})
			}
			for order := pb.RangeRequest_SortOrder(0); order <= 3; order++ {
				for target := pb.RangeRequest_SortTarget(0); target <= 5; target++ {
					every(func() *pb.RequestOp {
						return opRange(&pb.RangeRequest{Key: b("k"), RangeEnd: b("l"), SortOrder: order, SortTarget: target, Limit: 2})
					})
				}
			}
			for _, q := range []*pb.PutRequest{
				{Value: b("v")}, {PrevKv: true}, {Lease: 1}, {IgnoreLease: true, Value: b("w")}, {IgnoreValue: true, PrevKv: true},
				{IgnoreLease: true, IgnoreValue: true},
			} {
				every(func() *pb.RequestOp {
					q.Key = b("k2")
					return opPut(q)
				})
			}
			for _, q := range []*pb.DeleteRangeRequest{{}, {PrevKv: true}, {RangeEnd: b("k3")},
				{RangeEnd: b("l"), PrevKv: true}} {
				every(func() *pb.RequestOp {
					c.put("k2", "again")
					q.Key = b("k2")
					return opDelete(q)
				})
			}
			every(func() *pb.RequestOp { return &pb.RequestOp{} })
		}},
		{"a nested transaction's header is empty, other inner headers have the revision only", func(c *checker) {
			r := c.then(nested(ops(opsPut("a", "1"), opsGet("a", "")), nil), opsPut("b", ""))
			in := r.Responses[0].GetResponseTxn()
			c.holds(in.GetHeader() != nil && in.Header.Revision == 0 && r.Responses[1].GetResponsePut().Header.ClusterId == 0,
				"%v", r)
		}},
		{"all compares are judged on the state before the transaction", func(c *checker) {
			c.put("a", "old")
			r := c.then(opsPut("a", "new"), opTxn(&pb.TxnRequest{
				Compare: []*pb.Compare{{Key: b("a"), Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{Value: b("old")}}},
				Success: ops(opsGet("a", "")),
			}))
			c.holds(r.Responses[1].GetResponseTxn().GetSucceeded(), "%v", r)
		}},
		{"the chosen path is validated before anything is written", func(c *checker) {
			before := c.revision
			c.refused("KV/Txn", &pb.TxnRequest{Success: ops(opsPut("a", "1"),
				opRange(&pb.RangeRequest{Key: b("a"), Revision: before + 9}))}, codes.OutOfRange,
				"etcdserver: mvcc: required revision is a future revision")
			c.refused("KV/Txn", &pb.TxnRequest{Success: ops(opsPut("a", "1"), opPut(&pb.PutRequest{Key: b("b"), Lease: 99}))},
				codes.NotFound, "etcdserver: requested lease not found")
			c.refused("KV/Txn", &pb.TxnRequest{Success: ops(opsPut("a", "1"),
				nested(ops(opPut(&pb.PutRequest{Key: b("b"), IgnoreValue: true})), nil))}, codes.InvalidArgument,
				"etcdserver: key not found")
			c.holds(c.get("a") == nil && c.revision == before, "nothing was written")
			// The operations of the other path do not matter.
			c.holds(c.txn(&pb.TxnRequest{Success: ops(opsPut("a", "1")),
				Failure: ops(opRange(&pb.RangeRequest{Key: b("a"), Revision: 999}))}).Header != nil, "accepted")
		}},
		{"a value compare on a missing key is false, other targets compare with 0", func(c *checker) {
			for result := range pb.Compare_CompareResult_name {
				r := c.txn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("none"), Result: pb.Compare_CompareResult(result),
					Target: pb.Compare_VALUE, TargetUnion: &pb.Compare_Value{}}}})
				c.holds(!r.Succeeded, "VALUE %s", pb.Compare_CompareResult(result))
				for _, n := range []int64{-1, 0, 1} {
					for _, q := range []*pb.Compare{
						{Target: pb.Compare_VERSION, TargetUnion: &pb.Compare_Version{Version: n}},
						{Target: pb.Compare_CREATE, TargetUnion: &pb.Compare_CreateRevision{CreateRevision: n}},
						{Target: pb.Compare_MOD, TargetUnion: &pb.Compare_ModRevision{ModRevision: n}},
						{Target: pb.Compare_LEASE, TargetUnion: &pb.Compare_Lease{Lease: n}},
					} {
						q.Key, q.Result = b("none"), pb.Compare_CompareResult(result)
						c.txn(&pb.TxnRequest{Compare: []*pb.Compare{q}})
						q.RangeEnd = b("nonf")
						c.txn(&pb.TxnRequest{Compare: []*pb.Compare{q}})
					}
				}
			}
		}},
		{"a compare with an unknown target is equal, one with an unknown result holds", func(c *checker) {
			c.put("k1", "x")
			c.put("k2", "")
			for _, target := range []pb.Compare_CompareTarget{5, -1, pb.Compare_VERSION, pb.Compare_CREATE, pb.Compare_MOD,
				pb.Compare_VALUE, pb.Compare_LEASE} {
				for _, result := range []pb.Compare_CompareResult{4, -1, pb.Compare_EQUAL, pb.Compare_NOT_EQUAL,
					pb.Compare_GREATER, pb.Compare_LESS} {
					unknown := target < 0 || target > pb.Compare_LEASE
					if !unknown && result >= 0 && result < 4 {
						continue
					}
					for _, keys := range [][2]string{{"k1", ""}, {"none", ""}, {"k", "l"}, {"n", "o"}, {"k2", "\x00"}} {
						for _, q := range []*pb.Compare{{}, {TargetUnion: &pb.Compare_Version{Version: 1}},
							{TargetUnion: &pb.Compare_Value{Value: b("x")}}} {
							q.Key, q.RangeEnd, q.Target, q.Result = b(keys[0]), b(keys[1]), target, result
							r := c.txn(&pb.TxnRequest{Compare: []*pb.Compare{q}})
							if unknown {
								c.holds(r.Succeeded == (result < 0 || result == 4 || result == pb.Compare_EQUAL), "%v: %v", q, r)
							} else {
								c.holds(r.Succeeded == (target != pb.Compare_VALUE || keys[0] != "none" && keys[0] != "n"), "%v: %v", q, r)
							}
						}
					}
				}
			}
		}},
		{"a range compare needs every key to match", func(c *checker) {
			keys := []string{"k1", "k2", "k3"}
			for i, other := range []string{"x", "y", "y", "y"} {
				for _, k := range keys {
					c.put(k, "x")
				}
				c.put(keys[i%3], other)
				r := c.txn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("k"), RangeEnd: b("l"), Target: pb.Compare_VALUE,
					TargetUnion: &pb.Compare_Value{Value: b("x")}}}})
				c.holds(r.Succeeded == (other == "x"), "%v", r)
			}
		}},
		{"the revision rises once, and only if something changed", func(c *checker) {
			before := c.revision
			c.then(opsPut("a", ""), opsPut("b", ""), nested(ops(opsPut("c", ""), opsDelete("d", "")), nil))
			c.holds(c.revision == before+1, "by %d", c.revision-before)
			c.then(opsGet("a", ""), opsDelete("none", ""))
			c.txn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: b("a"), Target: pb.Compare_VERSION,
				TargetUnion: &pb.Compare_Version{Version: 9}}}, Success: ops(opsPut("a", ""))})
			c.holds(c.revision == before+1, "by %d", c.revision-before)
		}},
		{"the events of a transaction come in the order of its operations", func(c *checker) {
			c.put("x", "")
			c.watch(0, &pb.WatchCreateRequest{Key: b("\x00"), RangeEnd: b("\x00"), PrevKv: true})
			c.then(opsPut("c", ""), opsDelete("x", ""), opsPut("b", ""), nested(ops(opsPut("a", "")), nil))
			c.settle()
			var got []byte
			for _, e := range c.lastEvents() {
				got = append(got, e.Kv.Key...)
			}
			c.holds(bytes.HasPrefix(got, b("cxba")), "%s", got)
		}},
	})
}

func TestCompact(t *testing.T) {
	testClaims(t, nil, []claim{
		{"on a fresh store compact(0) succeeds once", func(c *checker) {
			c.holds(c.compact(0, false).err == nil, "compact(0)")
			c.refused("KV/Compact", &pb.CompactionRequest{}, codes.OutOfRange,
				"etcdserver: mvcc: required revision has been compacted")
		}},
		{"above the current revision is refused as future", func(c *checker) {
			c.refused("KV/Compact", &pb.CompactionRequest{Revision: c.revision + 1}, codes.OutOfRange,
				"etcdserver: mvcc: required revision is a future revision")
		}},
		{"at or below the compact revision is refused as compacted", func(c *checker) {
			for i := range 5 {
				c.put("a", fmt.Sprint(i))
			}
			at := c.revision - 1
			c.compact(at, true)
			for _, rev := range []int64{at, at - 1, 0, -1} {
				c.refused("KV/Compact", &pb.CompactionRequest{Revision: rev, Physical: rev == at}, codes.OutOfRange,
					"etcdserver: mvcc: required revision has been compacted")
			}
			c.compact(c.revision, false)
		}},
		{"a deleted key is gone behind a compaction, and can be created again", func(c *checker) {
			c.put("a", "1")
			c.put("b", "1")
			c.del("a", "")
			c.compact(c.revision, true)
			c.holds(c.get("a") == nil && c.get("b") != nil, "")
			c.put("a", "2")
			c.holds(c.get("a").GetVersion() == 1, "%v", c.get("a"))
		}},
	})
}
