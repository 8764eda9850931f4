package replica

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
	"github.com/sqlbrain/sqlbrain/server/mvcc/write"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// reference is what etcd answers to the requests of these tests.
type reference struct{ *model.State }

func newReference() reference { return reference{model.New(1)} }

// txn executes a transaction, and returns the answer as etcd has it.
func (m reference) txn(t *testing.T, txn *mvcc.Txn) *pb.TxnResponse {
	t.Helper()
	x := m.Execute(txnMessage(txn), m.Revision())
	if x.Err != nil {
		t.Fatalf("the model refuses %+v: %v", txn, x.Err)
	}
	if len(x.Events) > 0 {
		m.Apply(model.Revision{Number: m.Revision() + 1, Events: x.Events})
	}
	return x.Answer.(*pb.TxnResponse)
}

func (m reference) rangeOf(q *mvcc.RangeRequest) *pb.RangeResponse {
	return m.Execute(rangeMessage(q), m.Revision()).Answer.(*pb.RangeResponse)
}

// Requests and answers as etcd has them.

func txnMessage(t *mvcc.Txn) *pb.TxnRequest {
	out := &pb.TxnRequest{Success: opMessages(t.Then), Failure: opMessages(t.Else)}
	for _, c := range t.Compares {
		compare := &pb.Compare{Key: c.Key, RangeEnd: c.End, Target: pb.Compare_CompareTarget(c.Target),
			Result: pb.Compare_CompareResult(c.Result)}
		switch c.Target {
		case mvcc.CompareVersion:
			compare.TargetUnion = &pb.Compare_Version{Version: c.Int}
		case mvcc.CompareCreate:
			compare.TargetUnion = &pb.Compare_CreateRevision{CreateRevision: c.Int}
		case mvcc.CompareMod:
			compare.TargetUnion = &pb.Compare_ModRevision{ModRevision: c.Int}
		case mvcc.CompareLease:
			compare.TargetUnion = &pb.Compare_Lease{Lease: c.Int}
		case mvcc.CompareValue:
			compare.TargetUnion = &pb.Compare_Value{Value: c.Value}
		}
		out.Compare = append(out.Compare, compare)
	}
	return out
}

func opMessages(ops []mvcc.Op) (out []*pb.RequestOp) {
	for _, op := range ops {
		switch {
		case op.Range != nil:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: rangeMessage(op.Range)}})
		case op.Put != nil:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{
				Key: op.Put.Key, Value: op.Put.Value, Lease: op.Put.Lease, PrevKv: op.Put.PrevKV}}})
		case op.Delete != nil:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{
				RequestDeleteRange: &pb.DeleteRangeRequest{Key: op.Delete.Key, RangeEnd: op.Delete.End, PrevKv: op.Delete.PrevKV}}})
		case op.Txn != nil:
			out = append(out, &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: txnMessage(op.Txn)}})
		}
	}
	return out
}

func rangeMessage(q *mvcc.RangeRequest) *pb.RangeRequest {
	return &pb.RangeRequest{Key: q.Key, RangeEnd: q.End, Revision: q.Revision, Limit: q.Limit,
		SortOrder: pb.RangeRequest_SortOrder(q.SortOrder), SortTarget: pb.RangeRequest_SortTarget(q.SortBy),
		KeysOnly: q.KeysOnly, CountOnly: q.CountOnly, MinModRevision: q.MinModRevision, MaxModRevision: q.MaxModRevision,
		MinCreateRevision: q.MinCreateRevision, MaxCreateRevision: q.MaxCreateRevision}
}

func header(rev int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: rev} }

func txnAnswer(r *mvcc.TxnResult, h *pb.ResponseHeader) *pb.TxnResponse {
	out := &pb.TxnResponse{Header: h, Succeeded: r.Succeeded}
	for _, o := range r.Results {
		op := &pb.ResponseOp{}
		switch {
		case o.Range != nil:
			op.Response = &pb.ResponseOp_ResponseRange{ResponseRange: rangeAnswer(o.Range)}
		case o.Put != nil:
			answer := &pb.PutResponse{Header: header(o.Put.Revision)}
			if o.Put.Prev != nil {
				answer.PrevKv = recordMessage(o.Put.Prev)
			}
			op.Response = &pb.ResponseOp_ResponsePut{ResponsePut: answer}
		case o.Delete != nil:
			op.Response = &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: &pb.DeleteRangeResponse{
				Header: header(o.Delete.Revision), Deleted: o.Delete.Deleted, PrevKvs: recordMessages(o.Delete.Prev)}}
		case o.Txn != nil:
			op.Response = &pb.ResponseOp_ResponseTxn{ResponseTxn: txnAnswer(o.Txn, &pb.ResponseHeader{})}
		}
		out.Responses = append(out.Responses, op)
	}
	return out
}

func rangeAnswer(r *mvcc.RangeResult) *pb.RangeResponse {
	return &pb.RangeResponse{Header: header(r.Revision), Kvs: recordMessages(r.Records), Count: r.Count, More: r.More}
}

func recordMessages(records []*coder.Record) (kvs []*mvccpb.KeyValue) {
	for _, r := range records {
		kvs = append(kvs, recordMessage(r))
	}
	return kvs
}

func recordMessage(r *coder.Record) *mvccpb.KeyValue {
	return &mvccpb.KeyValue{Key: r.Key, Value: r.Value, CreateRevision: r.CreateRevision, ModRevision: r.ModRevision,
		Version: r.Version, Lease: r.Lease}
}

// generator makes random requests over few keys, so that they meet.
type generator struct {
	*rand.Rand
	m reference
}

var modelKeys = []string{"a", "a\x00", "a$", "a%", "b", "b/1", "b/2", "b/20", "b0", "\x00", "\xff", "z"}

func (g *generator) key() []byte { return []byte(modelKeys[g.IntN(len(modelKeys))]) }

func (g *generator) keyRange() mvcc.KeyRange {
	switch g.IntN(6) {
	case 0, 1, 2:
		return mvcc.KeyRange{Key: g.key()}
	case 3:
		return mvcc.KeyRange{Key: g.key(), End: []byte{0}}
	case 4:
		return mvcc.KeyRange{Key: []byte("b/"), End: []byte("b0")}
	default:
		return mvcc.KeyRange{Key: g.key(), End: g.key()} // may be inverted
	}
}

func (g *generator) revision() int64 {
	if g.IntN(2) == 0 {
		return 0
	}
	lowest := max(g.m.Compacted, 1)
	return lowest + g.Int64N(g.m.Revision()-lowest+1)
}

func (g *generator) rangeRequest() *mvcc.RangeRequest {
	q := &mvcc.RangeRequest{KeyRange: g.keyRange(), Revision: g.revision(), Limit: int64(g.IntN(4)),
		KeysOnly: g.IntN(4) == 0, CountOnly: g.IntN(6) == 0}
	if g.IntN(2) == 0 {
		q.SortBy, q.SortOrder = mvcc.SortTarget(g.IntN(5)), mvcc.SortOrder(g.IntN(3))
	}
	if g.IntN(4) == 0 {
		q.MinModRevision, q.MaxModRevision = g.Int64N(g.m.Revision()+1), g.Int64N(g.m.Revision()+1)
		q.MinCreateRevision, q.MaxCreateRevision = g.Int64N(g.m.Revision()/2+1), g.Int64N(g.m.Revision()+1)
	}
	return q
}

// txn makes a transaction whose puts do not meet other writes, as the front checks.
func (g *generator) txn(depth int) *mvcc.Txn {
	t := &mvcc.Txn{}
	for range g.IntN(3) {
		c := mvcc.Compare{KeyRange: g.keyRange(), Target: mvcc.CompareTarget(g.IntN(5)),
			Result: mvcc.CompareResult(g.IntN(4)), Int: g.Int64N(4), Value: []byte{byte('0' + g.IntN(3))}}
		if g.IntN(2) == 0 {
			c.Int = g.Int64N(g.m.Revision() + 1)
		}
		t.Compares = append(t.Compares, c)
	}
	t.Then, t.Else = g.ops(depth), g.ops(depth)
	return t
}

func (g *generator) ops(depth int) []mvcc.Op {
	var ops []mvcc.Op
	used := make(map[string]bool)
	for range g.IntN(4) {
		switch n := g.IntN(8); {
		case n < 3:
			k := g.key()
			meets := slices.ContainsFunc(ops, func(op mvcc.Op) bool {
				return op.Delete != nil && coder.Contains(op.Delete.Key, op.Delete.End, k)
			})
			if !meets && !used[string(k)] {
				used[string(k)] = true
				ops = append(ops, mvcc.Op{Put: &mvcc.PutRequest{Key: k, Value: []byte{byte('0' + g.IntN(3))},
					PrevKV: g.IntN(2) == 0}})
			}
		case n < 5:
			ops = append(ops, mvcc.Op{Range: g.rangeRequest()})
		case n < 7:
			kr := g.keyRange()
			meets := slices.ContainsFunc(ops, func(op mvcc.Op) bool {
				return op.Put != nil && coder.Contains(kr.Key, kr.End, op.Put.Key)
			})
			if !meets {
				ops = append(ops, mvcc.Op{Delete: &mvcc.DeleteRequest{KeyRange: kr, PrevKV: g.IntN(2) == 0}})
			}
		case depth > 0:
			ops = append(ops, mvcc.Op{Txn: &mvcc.Txn{Compares: g.txn(0).Compares, Then: []mvcc.Op{{Range: g.rangeRequest()}},
				Else: []mvcc.Op{{Range: g.rangeRequest()}}}})
		}
	}
	return ops
}

// creation returns a transaction that puts a key if it does not exist, perhaps among
// other operations.
func (g *generator) creation() *mvcc.Txn {
	txn := create(string(g.key()), "c")
	txn.Else = g.ops(0)
	if g.IntN(2) == 0 {
		txn.Then = append([]mvcc.Op{{Range: g.rangeRequest()}}, txn.Then[0], mvcc.Op{Range: g.rangeRequest()})
	}
	return txn
}

func TestRandomHistoriesMatchTheModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { runHistory(t, newStore(t), seed, 250) })
	}
}

// TestRandomBatchesMatchTheModel: transactions that are evaluated and committed
// together answer as if they came one after the other.
func TestRandomBatchesMatchTheModel(t *testing.T) {
	for seed := range uint64(30) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			m := newReference()
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 2)), m: m}
			l := idle(t)
			for step := range 60 {
				var commands []write.Command
				var txns []*mvcc.Txn
				for range 1 + g.IntN(6) {
					txn := g.creation()
					if g.IntN(2) == 0 {
						txn = g.txn(1)
					}
					txns, commands = append(txns, txn), append(commands, write.NewTxnCommand(txn))
				}
				if g.IntN(2) == 0 {
					l.pipeline.Forget(g.IntN(4) == 0)
				}
				for i, err := range runTogether(t, l, commands...) {
					if err != nil {
						t.Fatalf("step %d, transaction %d: %v", step, i, err)
					}
					want := m.txn(t, txns[i])
					result := commands[i].(*write.TxnCommand).Result()
					if got := txnAnswer(result, header(result.Revision)); !proto.Equal(got, want) {
						t.Fatalf("step %d, transaction %d %+v:\n got %v\nwant %v", step, i, txns[i], got, want)
					}
				}
			}
		})
	}
}

func runHistory(t *testing.T, store sqlstore.Store, seed uint64, steps int) {
	m := newReference()
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), m: m}
	change := func(c *Config) {
		c.Write.IndexCache = 1 + g.IntN(8) // evictions are part of the game
		if c.RecordCache = []int{0, 2000, 8000, 1 << 20}[g.IntN(4)]; g.IntN(2) == 0 {
			c.RecordCache = 0
		}
		c.CountSpanKeys, c.CountChanges = 1+g.IntN(4), 1+g.IntN(20)
	}
	b := open(t, store, change)
	for step := range steps {
		switch n := g.IntN(20); {
		case n < 12:
			txn := g.txn(1)
			if n < 4 {
				txn = g.creation()
			}
			want := m.txn(t, txn)
			result := mustTxn(t, b, txn)
			if got := txnAnswer(result, header(result.Revision)); !proto.Equal(got, want) {
				t.Fatalf("step %d, transaction %+v:\n got %v\nwant %v", step, txn, got, want)
			}
		case n < 17:
			q := g.rangeRequest()
			if got, want := rangeAnswer(mustRange(t, b, q)), m.rangeOf(q); !proto.Equal(got, want) {
				t.Fatalf("step %d, range %+v:\n got %v\nwant %v", step, q, got, want)
			}
		case n < 18:
			rev := g.Int64N(m.Revision() + 3)
			_, err := b.Compact(t.Context(), auth.System, rev, g.IntN(2) == 0)
			switch {
			case rev <= m.Compacted:
				if !errors.Is(err, mvcc.ErrCompacted) {
					t.Fatalf("step %d, compact %d at %d: %v", step, rev, m.Compacted, err)
				}
			case rev > m.Revision():
				if !errors.Is(err, mvcc.ErrFutureRevision) {
					t.Fatalf("step %d, compact %d at revision %d: %v", step, rev, m.Revision(), err)
				}
			case err != nil:
				t.Fatal(err)
			default:
				m.Compacted = rev
			}
		case n < 19:
			if m.Compacted > 1 {
				_, err := b.Reader.Range(t.Context(), auth.System,
					&mvcc.RangeRequest{KeyRange: all(), Revision: m.Compacted - 1}, true)
				if !errors.Is(err, mvcc.ErrCompacted) {
					t.Fatalf("step %d, reading below the compact revision: %v", step, err)
				}
			}
			_, err := b.Reader.Range(t.Context(), auth.System,
				&mvcc.RangeRequest{KeyRange: all(), Revision: m.Revision() + 1}, true)
			if !errors.Is(err, mvcc.ErrFutureRevision) {
				t.Fatalf("step %d, reading the future: %v", step, err)
			}
		default:
			closeReplica(t, b)
			b = open(t, store, change)
		}
	}
	for rev := max(m.Compacted, 1); rev <= m.Revision(); rev++ {
		q := &mvcc.RangeRequest{KeyRange: all(), Revision: rev}
		if got, want := rangeAnswer(mustRange(t, b, q)), m.rangeOf(q); !proto.Equal(got, want) {
			t.Fatalf("at the end, everything at revision %d:\n got %v\nwant %v", rev, got, want)
		}
	}
	checkTable(t, b, store, m)
	if n := testutil.ToFloat64(b.metrics.fence.InDoubt); n != 0 {
		t.Errorf("%v commits on a healthy store were in doubt", n)
	}
}

// checkTable compacts to the end and counts what is left: nothing but what reads
// at the compact revision, and watches from it, need.
func checkTable(t *testing.T, b *Replica, store sqlstore.Store, m reference) {
	t.Helper()
	mustTxn(t, b, put("last", "x"))
	last := mustTxn(t, b, put("last", "y")).Revision
	mustCompact(t, b, last, true)
	live := int(m.rangeOf(&mvcc.RangeRequest{KeyRange: all()}).Count)
	if _, exists := m.Get("last", m.Revision()); !exists {
		live++
	}
	count := func(lo, hi []byte) (n int) {
		for _, err := range store.Iter(t.Context(), sqlstore.Range{Start: lo, End: hi}) {
			if err != nil {
				t.Fatal(err)
			}
			n++
		}
		return n
	}
	lo, hi := coder.IndexBounds([]byte{0}, []byte{0})
	if n := count(lo[:4], hi); n != live {
		t.Errorf("%d index rows are left, %d keys live", n, live)
	}
	lo, hi = coder.VersionBounds([]byte{0}, []byte{0})
	if n := count(lo[:4], hi); n != live {
		t.Errorf("%d version rows are left, %d keys live", n, live)
	}
	lo, hi = coder.LogBounds(0, last)
	if n := count(lo, hi); n != 1 {
		t.Errorf("%d log rows are left, want that of the compact revision", n)
	}
}
