package compat

import (
	"fmt"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// claim is one sentence about what a compatible server must get right. Its check
// sends requests to both servers, whose answers must be the same, and looks
// whether etcd's bear the sentence out.
type claim struct {
	text  string
	check func(c *checker)
}

// checker is the world a claim is checked in: no keys, no leases, no streams.
type checker struct {
	*world
	t *testing.T
}

// testClaims checks claims one after the other on the same two servers. Behind one
// that failed, the servers may have diverged: the next gets new ones.
func testClaims(t *testing.T, flags []string, claims []claim) {
	t.Helper()
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		t.Parallel()
		var w *world
		for _, claimed := range claims {
			if w == nil {
				w = newWorld(startPair(t, e, flags...), &recording{engine: e.Name, source: byClaims, onPage: true})
			}
			t.Run(claimed.text, func(t *testing.T) {
				c := &checker{world: w, t: t}
				defer func() {
					w.close()
					if t.Failed() {
						spoil()
						w = nil
					}
				}()
				w.trace = nil
				c.clear()
				claimed.check(c)
				w.settle()
				w.rec.add(func(e *engineResults) { e.claims++ })
				if w.failed() {
					t.Errorf("the servers differ\nRequests:\n%s\nDifference: %s", strings.Join(w.trace, "\n"), w.diff)
				}
			})
		}
	})
}

// clear removes what earlier claims left.
func (c *checker) clear() {
	for _, id := range append([]int64(nil), c.leases...) {
		c.revoke(id)
	}
	c.del("\x00", "\x00")
}

func (c *checker) kv(method string, req proto.Message) answer { return c.ask("KV/"+method, req) }

// Short forms of the usual requests. They return etcd's response, an empty one if
// that was an error.
func (c *checker) put(key, value string) *pb.PutResponse {
	return response[pb.PutResponse](c.kv("Put", &pb.PutRequest{Key: []byte(key), Value: []byte(value)}))
}

func (c *checker) del(key, end string) *pb.DeleteRangeResponse {
	return response[pb.DeleteRangeResponse](c.kv("DeleteRange",
		&pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: true}))
}

func (c *checker) rng(q *pb.RangeRequest) *pb.RangeResponse {
	return response[pb.RangeResponse](c.kv("Range", q))
}

func (c *checker) get(key string) *mvccpb.KeyValue {
	kvs := c.rng(&pb.RangeRequest{Key: []byte(key)}).GetKvs()
	if len(kvs) != 1 {
		return nil
	}
	return kvs[0]
}

func (c *checker) txn(t *pb.TxnRequest) *pb.TxnResponse {
	return response[pb.TxnResponse](c.kv("Txn", t))
}

// then is a transaction without compares.
func (c *checker) then(ops ...*pb.RequestOp) *pb.TxnResponse {
	return c.txn(&pb.TxnRequest{Success: ops})
}

// response returns the one message of an answer.
func response[T any, P interface {
	*T
	proto.Message
}](a answer) P {
	if r, ok := a.only().(P); ok {
		return r
	}
	return P(new(T))
}

// refused asks for what etcd must refuse with the code and text given.
func (c *checker) refused(method string, req proto.Message, code codes.Code, text string) {
	c.t.Helper()
	a := c.ask(method, req)
	if status.Code(a.err) != code || status.Convert(a.err).Message() != text {
		c.t.Errorf("etcd answers %s %s, the claim is %s %q", brief(req), a, code, text)
	}
}

// holds fails the test unless etcd's answer bears the claim out.
func (c *checker) holds(is bool, what string, args ...any) {
	c.t.Helper()
	if !is {
		c.t.Errorf("not so in etcd: %s", fmt.Sprintf(what, args...))
	}
}

func keysOf(r *pb.RangeResponse) string {
	var keys []string
	for _, kv := range r.Kvs {
		keys = append(keys, string(kv.Key))
	}
	return strings.Join(keys, " ")
}

func opsPut(key, value string) *pb.RequestOp {
	return opPut(&pb.PutRequest{Key: []byte(key), Value: []byte(value), PrevKv: true})
}

func opsGet(key, end string) *pb.RequestOp {
	return opRange(&pb.RangeRequest{Key: []byte(key), RangeEnd: []byte(end)})
}

func opsDelete(key, end string) *pb.RequestOp {
	return opDelete(&pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end), PrevKv: true})
}
