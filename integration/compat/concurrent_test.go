package compat

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// clients send the requests of a concurrent history.
const clients = 8

// passingLease is revoked while clients use it.
const passingLease = 5

// recorded is a request with what the subject answered.
type recorded struct {
	call
	answer
	revision int64 // in the header: the state it was answered from, or made
	wrote    bool  // it made that revision
}

// TestConcurrentHistories sends requests of several clients at once to sqlbrain,
// and then the same requests to etcd, one after the other, in the order of the
// revisions that sqlbrain answered them with. etcd must answer each of them the
// same, whatever batches and caches they passed.
func TestConcurrentHistories(t *testing.T) {
	n := share(concurrent, 2, 20)
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		t.Parallel()
		for i := range n(e) {
			t.Run(fmt.Sprintf("seed=%d", firstSeed()+i), func(t *testing.T) {
				testConcurrentHistory(t, e, uint64(firstSeed()+i), lengthOfHistory()/4)
			})
		}
	})
}

func testConcurrentHistory(t *testing.T, e harness.Engine, seed uint64, length int) {
	w := newWorld(startPairWith(t, e, ownFlags(seed)), &recording{engine: e.Name, source: byConcurrent})
	defer w.close()
	for _, id := range []int64{1, 2, 3, passingLease} {
		w.grant(id, 3600*id)
	}
	watch := w.stream(0)
	if watch == nil {
		t.Fatal(w.diff)
	}
	everything := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, PrevKv: true, StartRevision: 2}
	created, err := watch.create(everything, 1)
	if err != nil {
		t.Fatal(err)
	}
	// Commits that come quickly one after the other may share a response.
	watch.watches[created.WatchId].live = false

	answered := load(w, seed, length)
	if !w.failed() {
		replay(w, answered)
	}
	if !w.failed() {
		w.settle()
	}
	if !w.failed() {
		w.compareState()
	}
	w.rec.add(func(e *engineResults) { e.concurrent++ })
	if w.failed() {
		t.Errorf("-seed %d: after %d requests, in the order of the revisions:\n%s\n%s",
			seed, len(w.trace), strings.Join(w.trace[max(0, len(w.trace)-20):], "\n"), w.diff)
	}
}

// load lets clients send requests to the subject all at once.
func load(w *world, seed uint64, length int) (answered []recorded) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(n)))
			mine := &world{revision: 1, leases: w.leases}
			for i := range length {
				c := mine.anyCall(r)
				if n == 0 && i == length/2 {
					c = call{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: passingLease}}
				}
				a := w.p.subject.ask(c)
				mine.learn(a)
				if failed(c, a.err) {
					mu.Lock()
					w.differ(c.String(), fmt.Sprint("nothing is wrong, and the answer is ", a))
					mu.Unlock()
				}
				if a.err != nil || c.method == "Lease/LeaseRevoke" {
					continue // its revision is not known
				}
				rec := recorded{call: c, answer: a}
				for _, m := range a.messages {
					if h := m.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader(); h != nil {
						rec.revision = h.Revision
					}
					rec.wrote = rec.wrote || wrote(m)
				}
				mu.Lock()
				answered = append(answered, rec)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	if len(answered) < clients*length/2 {
		w.differ("requests that were not refused", fmt.Sprintf("%d of %d", len(answered), clients*length))
	}
	return answered
}

// missingLease finds, in the text of a request, a lease that need not exist.
var missingLease = regexp.MustCompile(fmt.Sprintf(`lease: *(%d|-?999|%d)\b`, passingLease, math.MaxInt64))

// failed reports whether err is not a refusal for what is in the request.
func failed(c call, err error) bool {
	switch status.Code(err) {
	case codes.Unavailable, codes.Internal, codes.Unknown, codes.ResourceExhausted, codes.DeadlineExceeded:
		return true
	}
	return rpctypes.Error(err) == rpctypes.ErrLeaseNotFound && c.method != "Lease/LeaseRevoke" &&
		!missingLease.MatchString(c.String())
}

// anyCall draws a request that says in its answer from which revision it is.
func (w *world) anyCall(r *rand.Rand) call {
	switch n := r.IntN(10); {
	case n < 4:
		return call{"KV/Put", w.anyPut(r)}
	case n < 6:
		return call{"KV/Range", w.anyRangeRequest(r)}
	case n < 7:
		d := anyDelete(r)
		if !chance(r, 6) {
			d.RangeEnd = nil
		}
		return call{"KV/DeleteRange", d}
	default:
		for {
			if t := w.anyTxn(r, 2); !acceptedByAccident(t) {
				return call{"KV/Txn", t}
			}
		}
	}
}

// wrote reports whether the answer is one of a request that changed something.
func wrote(m proto.Message) bool {
	switch r := m.(type) {
	case *pb.PutResponse:
		return true
	case *pb.DeleteRangeResponse:
		return r.Deleted > 0
	case *pb.TxnResponse:
		return slices.ContainsFunc(r.Responses, func(op *pb.ResponseOp) bool {
			switch u := op.Response.(type) {
			case *pb.ResponseOp_ResponsePut:
				return true
			case *pb.ResponseOp_ResponseDeleteRange:
				return wrote(u.ResponseDeleteRange)
			case *pb.ResponseOp_ResponseTxn:
				return wrote(u.ResponseTxn)
			}
			return false
		})
	}
	return false
}

// replay sends the requests to etcd in the order of their revisions: first the
// one that made a revision, then those that were answered from it.
func replay(w *world, answered []recorded) {
	slices.SortStableFunc(answered, func(a, b recorded) int {
		if c := cmp.Compare(a.revision, b.revision); c != 0 {
			return c
		}
		switch {
		case a.wrote == b.wrote:
			return 0
		case a.wrote:
			return -1
		default:
			return 1
		}
	})
	revoke := call{"Lease/LeaseRevoke", &pb.LeaseRevokeRequest{ID: passingLease}}
	revoked := false
	for _, rec := range answered {
		if rec.revision > w.revision+1 || rec.revision == w.revision+1 && !rec.wrote {
			// A revision that no client made: that of the lease's end.
			if revoked {
				w.differ(rec.call.String(), fmt.Sprintf("revision %d belongs to no request", w.revision+1))
				return
			}
			w.trace = append(w.trace, revoke.String())
			w.learn(w.p.etcd.ask(revoke))
			revoked = true
		}
		w.trace = append(w.trace, rec.call.String())
		etcd := w.p.etcd.ask(rec.call)
		w.learn(etcd)
		w.compare(rec.call, etcd, rec.answer)
		if w.failed() {
			return
		}
	}
	if !revoked {
		w.p.etcd.ask(revoke)
	}
	w.leases = slices.DeleteFunc(w.leases, func(id int64) bool { return id == passingLease })
}
