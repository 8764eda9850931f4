package etcd

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
)

func requireStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	st := status.Convert(toGRPC(err))
	require.Equal(t, code.String(), st.Code().String(), "%v", err)
	require.Contains(t, st.Message(), text)
}

var key = []byte("k")

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

// TestNestedTransactionsAreBoundedAsAWhole builds what the bound on each branch allows, and what
// takes seconds to look at.
func TestNestedTransactionsAreBoundedAsAWhole(t *testing.T) {
	n := 0
	var nest func(widths ...int) *pb.TxnRequest
	nest = func(widths ...int) *pb.TxnRequest {
		r := &pb.TxnRequest{}
		for _, branch := range []*[]*pb.RequestOp{&r.Success, &r.Failure} {
			for range widths[0] {
				if len(widths) > 1 {
					*branch = append(*branch, opTxn(nest(widths[1:]...)))
					continue
				}
				n++
				*branch = append(*branch, opPut(&pb.PutRequest{Key: fmt.Append(nil, n)}))
			}
		}
		return r
	}
	require.NoError(t, validateTxn(nest(128), 128))
	require.NoError(t, validateTxn(nest(64, 64), 128))
	require.NoError(t, validateTxn(nest(1, 1, 1, 1), 4), "few are allowed however small the bound is")
	requireStatus(t, validateTxn(nest(30, 30, 30), 128), codes.InvalidArgument, "too many operations in txn request")

	// A deep one costs its depth: each operation is looked at for all transactions around it.
	deep := nest(29, 29)
	for range 70 {
		deep = &pb.TxnRequest{Success: []*pb.RequestOp{opTxn(deep)}}
	}
	requireStatus(t, validateTxn(deep, 128), codes.InvalidArgument, "too many operations in txn request")
	compares := &pb.TxnRequest{Success: []*pb.RequestOp{opTxn(
		&pb.TxnRequest{Compare: slices.Repeat([]*pb.Compare{{Key: key}}, 100)})}}
	requireStatus(t, validateTxn(&pb.TxnRequest{Success: slices.Repeat(compares.Success, 20),
		Failure: slices.Repeat(compares.Success, 20)}, 120), codes.OK, "")
	for range 5 {
		compares = &pb.TxnRequest{Success: slices.Repeat([]*pb.RequestOp{opTxn(compares)}, 4)}
	}
	requireStatus(t, validateTxn(compares, 128), codes.InvalidArgument, "too many operations in txn request")
}

func TestRequestsRefused(t *testing.T) {
	many := func(n int) (ops []*pb.RequestOp) {
		for range n {
			ops = append(ops, opRange(&pb.RangeRequest{Key: key}))
		}
		return ops
	}
	txn := func(r *pb.TxnRequest) error { return validateTxn(r, 4) }
	success := func(ops ...*pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Success: ops} }
	failure := func(ops ...*pb.RequestOp) *pb.TxnRequest { return &pb.TxnRequest{Failure: ops} }
	const emptyKey, badSort, tooMany = "etcdserver: key is not provided", "etcdserver: invalid sort option",
		"etcdserver: too many operations in txn request"
	long := []byte(strings.Repeat("k", 4000))

	tests := []struct {
		name string
		err  error
		code codes.Code
		text string
	}{
		{"range without key", validateRange(&pb.RangeRequest{SortOrder: 9}), codes.InvalidArgument, emptyKey},
		{"range with unknown order", validateRange(&pb.RangeRequest{Key: key, SortOrder: 3}), codes.InvalidArgument, badSort},
		{"range with negative order", validateRange(&pb.RangeRequest{Key: key, SortOrder: -1}), codes.InvalidArgument,
			badSort},
		{"range with unknown target", validateRange(&pb.RangeRequest{Key: key, SortTarget: 5}), codes.InvalidArgument,
			badSort},

		{"stream without key", validateRangeStream(&pb.RangeRequest{SortOrder: pb.RangeRequest_DESCEND}),
			codes.InvalidArgument, emptyKey},
		{"stream descending", validateRangeStream(&pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_DESCEND}),
			codes.Unimplemented, "custom sort orders"},
		{"stream by mod", validateRangeStream(&pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_ASCEND,
			SortTarget: pb.RangeRequest_MOD}), codes.Unimplemented, "custom sort orders"},
		{"stream min mod", validateRangeStream(&pb.RangeRequest{Key: key, MinModRevision: 1}), codes.Unimplemented,
			"revision filters"},
		{"stream max mod", validateRangeStream(&pb.RangeRequest{Key: key, MaxModRevision: 1}), codes.Unimplemented,
			"revision filters"},
		{"stream min create", validateRangeStream(&pb.RangeRequest{Key: key, MinCreateRevision: 1}), codes.Unimplemented,
			"revision filters"},
		{"stream max create", validateRangeStream(&pb.RangeRequest{Key: key, MaxCreateRevision: 1}), codes.Unimplemented,
			"revision filters"},

		{"put without key", validatePut(&pb.PutRequest{IgnoreValue: true, Value: key}), codes.InvalidArgument, emptyKey},
		{"put with the value to ignore",
			validatePut(&pb.PutRequest{Key: key, IgnoreValue: true, Value: key, IgnoreLease: true, Lease: 1}),
			codes.InvalidArgument, "etcdserver: value is provided"},
		{"put with the lease to ignore", validatePut(&pb.PutRequest{Key: key, IgnoreLease: true, Lease: 1}),
			codes.InvalidArgument, "etcdserver: lease is provided"},
		{"put of a key too long", validatePut(&pb.PutRequest{Key: long}), codes.InvalidArgument, "sqlbrain: key is too long"},
		{"delete without key", validateDelete(&pb.DeleteRangeRequest{RangeEnd: key}), codes.InvalidArgument, emptyKey},

		{"too many compares", txn(&pb.TxnRequest{Compare: make([]*pb.Compare, 5)}), codes.InvalidArgument, tooMany},
		{"too many in success", txn(success(many(5)...)), codes.InvalidArgument, tooMany},
		{"too many in failure", txn(failure(many(5)...)), codes.InvalidArgument, tooMany},
		{"count before content", txn(success(make([]*pb.RequestOp, 5)...)), codes.InvalidArgument, tooMany},
		{"nested gets the remainder", txn(success(opTxn(success(many(4)...)))), codes.InvalidArgument, tooMany},
		{"the largest branch counts",
			txn(&pb.TxnRequest{Failure: many(3), Success: []*pb.RequestOp{opTxn(success(many(2)...))}}), codes.InvalidArgument,
			tooMany},
		{"compare without key", txn(&pb.TxnRequest{Compare: []*pb.Compare{{}}}), codes.InvalidArgument, emptyKey},
		{"compares before operations", txn(&pb.TxnRequest{Compare: []*pb.Compare{{}}, Success: []*pb.RequestOp{{}}}),
			codes.InvalidArgument, emptyKey},
		{"operation not set", txn(success(&pb.RequestOp{})), codes.InvalidArgument, "etcdserver: key not found"},
		{"operation nil", txn(failure(nil)), codes.InvalidArgument, "etcdserver: key not found"},
		{"operation not set, nested", txn(failure(opTxn(failure(&pb.RequestOp{})))), codes.InvalidArgument,
			"etcdserver: key not found"},
		{"inner range", txn(success(opRange(&pb.RangeRequest{Key: key, SortOrder: 3}))), codes.InvalidArgument, badSort},
		{"inner put", txn(failure(opPut(&pb.PutRequest{}))), codes.InvalidArgument, emptyKey},
		{"inner put of a key too long", txn(failure(opPut(&pb.PutRequest{Key: long}))), codes.InvalidArgument,
			"sqlbrain: key is too long"},
		{"inner delete", txn(success(opDelete(&pb.DeleteRangeRequest{}))), codes.InvalidArgument, emptyKey},
		{"inner range of nil", txn(success(opRange(nil))), codes.InvalidArgument, emptyKey},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { requireStatus(t, tt.err, tt.code, tt.text) })
	}
}

func TestRequestsAccepted(t *testing.T) {
	long := []byte(strings.Repeat("k", 4000))
	require.NoError(t, validateRange(&pb.RangeRequest{Key: long, SortOrder: pb.RangeRequest_DESCEND,
		SortTarget: pb.RangeRequest_VALUE}))
	require.NoError(t, validateRangeStream(&pb.RangeRequest{Key: key}))
	require.NoError(t, validateRangeStream(&pb.RangeRequest{Key: key, SortOrder: pb.RangeRequest_ASCEND}))
	require.NoError(t, validateRangeStream(&pb.RangeRequest{Key: key, SortTarget: pb.RangeRequest_MOD}))
	require.NoError(t, validatePut(&pb.PutRequest{Key: key, IgnoreValue: true, IgnoreLease: true}))
	require.NoError(t, validateDelete(&pb.DeleteRangeRequest{Key: long}), "deleting such a key finds nothing")
	require.NoError(t, validateTxn(&pb.TxnRequest{}, 0))
	require.NoError(t, validateTxn(&pb.TxnRequest{Compare: []*pb.Compare{{Key: key, Target: 5},
		{Key: key, Result: 4}}}, 2),
		"etcd takes them for something")
	nested := opTxn(&pb.TxnRequest{Success: []*pb.RequestOp{opRange(&pb.RangeRequest{Key: key})}})
	require.NoError(t, validateTxn(&pb.TxnRequest{Success: []*pb.RequestOp{nested}}, 2))
}

func TestRequestSizeIsMeasuredAsEtcdDoes(t *testing.T) {
	size := func(valueBytes, limit int) error {
		return validateSize(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key, Value: make([]byte, valueBytes)}},
			guard.Caller{}, limit)
	}
	require.NoError(t, size(1000, 1100))
	requireStatus(t, size(1000, 1000), codes.InvalidArgument, "etcdserver: request is too large")
	// The wrapping counts: 6 bytes around the value, 3 around the put, 14 for the header.
	require.NoError(t, size(1000, 1000+6+3+14+1))
	requireStatus(t, size(1000, 1000+6), codes.InvalidArgument, "etcdserver: request is too large")
	// So does who makes the request: 6 bytes for the name, 2 for the revision.
	named := func(limit int) error {
		return validateSize(&pb.InternalRaftRequest{Put: &pb.PutRequest{Key: key, Value: make([]byte, 1000)}},
			guard.Caller{Name: "root", Revision: 9}, limit)
	}
	require.NoError(t, named(1000+6+3+14+1+6+2))
	requireStatus(t, named(1000+6+3+14+6+1), codes.InvalidArgument, "etcdserver: request is too large")
}

func put(key string) *pb.RequestOp { return opPut(&pb.PutRequest{Key: []byte(key)}) }
func del(key, end string) *pb.RequestOp {
	return opDelete(&pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)})
}
func nest(success, failure []*pb.RequestOp) *pb.RequestOp {
	return opTxn(&pb.TxnRequest{Success: success, Failure: failure})
}

func TestOverlappingWritesAreRefused(t *testing.T) {
	type ops = []*pb.RequestOp
	tests := []struct {
		name      string
		branch    ops
		duplicate bool
	}{
		{"puts of different keys", ops{put("a"), put("b")}, false},
		{"puts of one key", ops{put("a"), put("a")}, true},
		{"put and delete of one key", ops{put("a"), del("a", "")}, true},
		{"delete and put of one key", ops{del("a", ""), put("a")}, true},
		{"put inside a deleted range", ops{put("b"), del("a", "c")}, true},
		{"put at the start of a deleted range", ops{put("a"), del("a", "c")}, true},
		{"put at the end of a deleted range", ops{put("c"), del("a", "c")}, false},
		{"put behind a deleted key", ops{put("a\x00"), del("a", "")}, false},
		{"put in an inverted range", ops{put("b"), del("c", "a")}, false},
		{"put and an empty range", ops{put("a"), del("a", "a")}, false},
		{"put behind the start of all keys", ops{put("z"), del("a", "\x00")}, true},
		{"put ahead of the start of all keys", ops{put("A"), del("a", "\x00")}, false},
		{"overlapping deletes", ops{del("a", "c"), del("b", "d"), del("b", "")}, false},
		{"put between deletes", ops{del("a", "b"), del("c", "d"), put("b")}, false},
		{"ranges do not count", ops{put("a"), opRange(&pb.RangeRequest{Key: []byte("a")})}, false},
		{"puts in the branches of one nested txn", ops{nest(ops{put("a")}, ops{put("a")})}, false},
		{"put and delete in the branches of one nested txn", ops{nest(ops{put("a")}, ops{del("a", "")})}, false},
		{"puts in one branch of a nested txn", ops{nest(nil, ops{put("a"), put("a")})}, true},
		{"put and nested put", ops{put("a"), nest(nil, ops{put("a")})}, true},
		{"nested put and put", ops{nest(ops{put("a")}, nil), put("a")}, true},
		{"put and nested delete", ops{nest(ops{del("a", "c")}, nil), put("b")}, true},
		{"nested put and delete", ops{nest(ops{put("b")}, nil), del("a", "c")}, true},
		{"puts in two nested txns", ops{nest(ops{put("a")}, nil), nest(nil, ops{put("a")})}, true},
		{"put, then delete, in two nested txns", ops{nest(ops{put("a")}, nil), nest(ops{del("a", "")}, nil)}, false},
		{"put, then delete of a range, in two nested txns",
			ops{nest(nil, ops{nest(ops{put("b")}, nil)}), nest(nil, ops{del("a", "c")})}, false},
		{"nested put between deletes in two nested txns",
			ops{nest(ops{del("b", "d")}, nil), nest(ops{put("c")}, nil), nest(ops{del("a", "c\x00")}, nil)}, true},
		{"delete, then put, in two nested txns", ops{nest(ops{del("a", "")}, nil), nest(ops{put("a")}, nil)}, true},
		{"both branches' puts and another's", ops{nest(ops{put("a")}, ops{put("a")}), put("a")}, true},
		{"deeply nested", ops{put("a"), nest(nil, ops{nest(ops{nest(nil, ops{del("a", "")})}, nil)})}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for _, r := range []*pb.TxnRequest{{Success: tt.branch}, {Failure: tt.branch}} {
				err := validateOverlap(r)
				if tt.duplicate {
					requireStatus(t, err, codes.InvalidArgument, "etcdserver: duplicate key given in txn request")
				} else {
					require.NoError(t, err)
				}
			}
		})
	}
	require.NoError(t, validateOverlap(&pb.TxnRequest{Success: ops{put("a")}, Failure: ops{put("a"), del("b", "")}}),
		"branches may overlap")
}

// FuzzOverlap compares the sweep with looking at every pair of operations.
func FuzzOverlap(f *testing.F) {
	f.Add([]byte("\x00\x01\x01\x00\x03"))
	f.Add([]byte("\x02\x00\x01\x04\x01\x01\x03\x02\x05\x00\x01\x02"))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 60 {
			return
		}
		branch, _ := scriptedOps(script, 0)
		err := validateOverlap(&pb.TxnRequest{Success: branch})
		if want := pairwiseDuplicate(branch); want != (err != nil) {
			t.Fatalf("validateOverlap(%v) = %v, want duplicate %v", branch, err, want)
		}
	})
}

func scriptedOps(script []byte, depth int) (ops []*pb.RequestOp, rest []byte) {
	letter := func(b byte) string { return string(rune('a' + b%6)) }
	for len(script) >= 3 {
		kind, a, b := script[0]%6, script[1], script[2]
		script = script[3:]
		switch {
		case kind < 2:
			ops = append(ops, put(letter(a)))
		case kind == 2:
			ops = append(ops, del(letter(a), ""))
		case kind == 3 && b%7 == 0:
			ops = append(ops, del(letter(a), "\x00"))
		case kind == 3:
			ops = append(ops, del(letter(a), letter(b)))
		case kind == 4 && depth < 3:
			var success, failure []*pb.RequestOp
			success, script = scriptedOps(script, depth+1)
			failure, script = scriptedOps(script, depth+1)
			ops = append(ops, nest(success, failure))
		default:
			return ops, script
		}
	}
	return ops, script
}

func pairwiseDuplicate(branch []*pb.RequestOp) bool {
	for i, a := range branch {
		if txn := a.GetRequestTxn(); txn != nil && (pairwiseDuplicate(txn.Success) || pairwiseDuplicate(txn.Failure)) {
			return true
		}
		for _, b := range branch[i+1:] {
			for _, x := range writesOf(a) {
				for _, y := range writesOf(b) {
					if x.GetRequestPut() != nil && y.GetRequestDeleteRange() != nil && a.GetRequestTxn() != nil &&
						b.GetRequestTxn() != nil {
						continue // the delete is in a later nested transaction
					}
					if clash(x, y) || clash(y, x) {
						return true
					}
				}
			}
		}
	}
	return false
}

func writesOf(op *pb.RequestOp) (leaves []*pb.RequestOp) {
	txn := op.GetRequestTxn()
	if txn == nil {
		return []*pb.RequestOp{op}
	}
	for _, branch := range [][]*pb.RequestOp{txn.Success, txn.Failure} {
		for _, inner := range branch {
			leaves = append(leaves, writesOf(inner)...)
		}
	}
	return leaves
}

func clash(a, b *pb.RequestOp) bool {
	p := a.GetRequestPut()
	if p == nil {
		return false
	}
	if q := b.GetRequestPut(); q != nil {
		return bytes.Equal(p.Key, q.Key)
	}
	d := b.GetRequestDeleteRange()
	switch {
	case d == nil:
		return false
	case len(d.RangeEnd) == 0:
		return bytes.Equal(p.Key, d.Key)
	case bytes.Equal(d.RangeEnd, []byte{0}):
		return bytes.Compare(p.Key, d.Key) >= 0
	}
	return bytes.Compare(p.Key, d.Key) >= 0 && bytes.Compare(p.Key, d.RangeEnd) < 0
}
