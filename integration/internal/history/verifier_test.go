package history

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"
)

// scene is a small history in which everything is right. Each case of
// TestVerifierFindsViolations spoils one thing.
type scene struct {
	r       *Recorder
	account []Revision
	state   *Verifier // its model is the state
}

// do records a request, whose values are those that compose gets, and what becomes of it.
func (s *scene) do(outcome Outcome, compose func(value string) proto.Message) {
	s.finish(s.r.Begin(func(id int) Op { return Op{Request: compose(Token(id))} }), outcome)
}

func (s *scene) finish(op *Op, outcome Outcome) {
	var answer proto.Message
	if op.Request != nil {
		answer = proto.Clone(s.state.model.Execute(op.Request, s.state.Revision()).Answer)
	}
	effects := s.state.effects(op, s.state.Revision())
	if outcome == Applied || outcome == Unknown && len(effects) > 0 {
		rev := Revision{Number: s.state.Revision() + 1, Events: effects}
		s.account = append(s.account, rev)
		s.state.model.Apply(rev)
	}
	switch outcome {
	case Applied, NotApplied:
		s.r.Finish(op, outcome, s.state.Revision(), answer, nil)
	case Refused:
		s.r.Finish(op, outcome, 0, nil, rpctypes.ErrGRPCLeaseNotFound)
	default:
		s.r.Finish(op, outcome, 0, nil, errors.New("cut off"))
	}
}

func (s *scene) read(request *pb.RangeRequest) {
	read := s.r.BeginRead(Read{Request: request})
	s.r.FinishRead(read, s.state.Revision(), proto.Clone(s.state.model.Execute(read.Request, s.state.Revision()).Answer))
}

// putAll returns a request that puts keys, with a lease.
func putAll(lease int64, keys ...string) func(value string) proto.Message {
	return func(value string) proto.Message {
		txn := &pb.TxnRequest{}
		for _, key := range keys {
			p := put(key, value)
			p.Lease = lease
			txn.Success = append(txn.Success, RequestOp(p))
		}
		return txn
	}
}

// putIf returns a request that puts a key if that has a mod revision, and else reads it.
func putIf(key string, rev int64) func(value string) proto.Message {
	return func(value string) proto.Message {
		return &pb.TxnRequest{Compare: []*pb.Compare{modIs(key, rev)}, Success: []*pb.RequestOp{RequestOp(put(key, value))},
			Failure: []*pb.RequestOp{RequestOp(&pb.RangeRequest{Key: []byte(key)})}}
	}
}

func deleteAll(key, end string) func(string) proto.Message {
	return func(string) proto.Message { return remove(key, end) }
}

func newScene() *scene {
	s := &scene{r: NewRecorder(), state: NewVerifier(nil, 1)}
	s.do(Applied, putAll(0, "a"))                // 2, request 1
	s.do(Applied, putAll(0, "b", "c", "d"))      // 3, request 2
	s.do(Applied, putIf("a", 2))                 // 4, request 3
	s.do(NotApplied, putIf("a", 2))              // -, request 4
	s.do(Unknown, deleteAll("b", "d"))           // 5, request 5
	s.do(NotApplied, deleteAll("b", "d"))        // -, request 6
	s.do(Unknown, func(v string) proto.Message { // 6, request 7
		return &pb.TxnRequest{Success: []*pb.RequestOp{RequestOp(put("e", v)), RequestOp(remove("d", ""))}}
	})
	s.r.BeginGrant(77)
	s.r.FinishGrant(77)
	s.do(Applied, putAll(77, "l2", "l1"))                                // 7, request 8
	s.finish(s.r.Begin(func(int) Op { return Op{Revoke: 77} }), Applied) // 8, request 9
	s.do(Applied, putAll(0, "b"))                                        // 9, request 10
	s.do(Refused, putAll(99, "never"))                                   // -, request 11
	s.read(ranged(nil))
	s.read(ranged(func(r *pb.RangeRequest) { r.Revision = 3 }))
	s.read(ranged(func(r *pb.RangeRequest) { r.RangeEnd = nil }))
	return s
}

func TestVerifierAcceptsCorrectHistory(t *testing.T) {
	s := newScene()
	require.Len(t, s.account, 8)
	v := NewVerifier(s.r, 1)
	require.Empty(t, v.Round(s.account))
	require.EqualValues(t, 9, v.Revision())

	// A second round continues where the first ended, and an unknown request of the
	// first may still take effect in it.
	late := s.r.Begin(func(id int) Op { return Op{Request: put("late", Token(id))} })
	require.Empty(t, v.Round(nil))
	rev := Revision{Number: 10, Events: s.state.effects(late, 9)}
	require.Empty(t, v.Round([]Revision{rev}))

	var w Stream
	w.Revisions = []Revision{{Number: 4, Events: slices.Clone(s.account[2].Events)}}
	require.Empty(t, v.CheckWatch(Range{Key: "a"}, 3, 9, true, &w))
	require.NotEmpty(t, v.CheckWatch(Range{Key: "a"}, 2, 9, true, &w), "revision 2 is missing")
	require.NotEmpty(t, v.CheckWatch(Range{Key: "a"}, 5, 9, true, &w), "revision 4 is not asked for")
	require.NotEmpty(t, v.CheckWatch(Range{Key: "b"}, 3, 9, true, &w), "another range")
	require.NotEmpty(t, v.CheckWatch(Range{Key: "a"}, 3, 9, false, &w), "prev_kv was not asked for")
}

// The end of a lease and a delete with an unknown outcome may fit the same revision. What was
// guessed wrong is corrected when the other one is needed.
func TestVerifierCorrectsItsGuesses(t *testing.T) {
	s := newScene()
	s.r.BeginGrant(78)
	s.r.FinishGrant(78)
	s.r.Begin(func(int) Op { return Op{Revoke: 78} })
	s.do(Applied, putAll(78, "l"))                                            // 10
	s.do(Unknown, deleteAll("l", ""))                                         // 11, which the lease's end fits as well
	s.do(Applied, putAll(78, "l"))                                            // 12
	s.do(Applied, putAll(78, "m"))                                            // 13
	end := Revision{Number: 14, Events: s.state.effects(&Op{Revoke: 78}, 13)} // which the delete does not fit
	s.state.model.Apply(end)
	s.account = append(s.account, end)
	v := NewVerifier(s.r, 1)
	require.Empty(t, v.Round(s.account))

	s.do(Applied, putAll(0, "l")) // 15
	again := Revision{Number: 16, Events: s.state.effects(&Op{Request: remove("l", "")}, 15)}
	found := v.Round(append(s.account[len(s.account)-1:], again))
	require.Len(t, found, 1)
	require.Contains(t, found[0], "revision 16 is from nowhere")
}

func TestVerifierFindsViolations(t *testing.T) {
	at := func(s *scene, rev int64) *Revision { return &s.account[rev-2] }
	cases := []struct {
		name, want string
		spoil      func(s *scene)
	}{
		{"a lost write", "lost: request 10", func(s *scene) { s.account = s.account[:len(s.account)-1] }},
		{"a gap", "revision 4 follows 2", func(s *scene) { s.account = slices.Delete(s.account, 1, 2) }},
		{"a revision twice", "revision 4 follows 4", func(s *scene) { s.account = slices.Insert(s.account, 3, s.account[2]) }},
		{"swapped revisions", "revision 4 follows 2", func(s *scene) { s.account[1], s.account[2] = s.account[2], s.account[1] }},
		{"half a transaction", "request 2", func(s *scene) { at(s, 3).Events = at(s, 3).Events[:2] }},
		{"half an unknown transaction", "request 7", func(s *scene) { at(s, 6).Events = at(s, 6).Events[:1] }},
		{"half a deletion", "revision 5 is from nowhere", func(s *scene) { at(s, 5).Events = at(s, 5).Events[:1] }},
		{"half a revocation", "revision 8 is from nowhere", func(s *scene) { at(s, 8).Events = at(s, 8).Events[:1] }},
		{"a revocation out of key order", "revision 8 is from nowhere", func(s *scene) { slices.Reverse(at(s, 8).Events) }},
		{"another value", "request 2", func(s *scene) { at(s, 3).Events[1].Value += "x" }},
		{"another version", "request 3", func(s *scene) { at(s, 4).Events[0].Version++ }},
		{"another create revision", "request 3", func(s *scene) { at(s, 4).Events[0].CreateRevision++ }},
		{"another previous value", "request 3", func(s *scene) { at(s, 4).Events[0].Prev.Value = "x" }},
		{"no previous value", "request 3", func(s *scene) { at(s, 4).Events[0].Prev = nil }},
		{"a lost lease", "request 8", func(s *scene) { at(s, 7).Events[0].Lease = 0 }},
		{"a write without a request", "revision 10 is from nowhere", func(s *scene) {
			s.account = append(s.account, Revision{Number: 10, Events: []Event{{KV: KV{Key: "x", ModRevision: 10}}}})
		}},
		{"a deletion without a request", "revision 10 is from nowhere", func(s *scene) {
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(&Op{Request: remove("e", "")}, 9)})
		}},
		{"an unknown request applied twice", "applied twice, at 6 and 10", func(s *scene) {
			op := s.r.ops[6]
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(op, 9)})
		}},
		{"a refused request applied", "that must have none: request 11", func(s *scene) {
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(s.r.ops[10], 9)})
		}},
		{"a false compare applied", "that must have none: request 4", func(s *scene) {
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(&Op{Request: put("a", Token(4))}, 9)})
		}},
		{"a compare that did not hold", "revision 4: request 3", func(s *scene) { s.r.ops[2].Request = putIf("a", 3)(Token(3)) }},
		{"a false compare that was true", "rather than", func(s *scene) { s.r.ops[3].Request = putIf("a", 4)(Token(4)) }},
		{"another revision acknowledged", "lost: request 10", func(s *scene) { s.r.ops[9].Revision = 12 }},
		{"one revision for two", "acknowledged twice", func(s *scene) { s.r.ops[9].Revision = 7 }},
		{"a write older than its request", "older than what was known", func(s *scene) { s.r.ops[9].MinRevision = 9 }},
		{"an unknown write older than its request", "older than what was known", func(s *scene) { s.r.ops[6].MinRevision = 6 }},
		{"an answer from the past", "answered from the past", func(s *scene) { s.r.ops[3].MinRevision = 6 }},
		{"nothing to delete, where there is", "rather than", func(s *scene) { s.r.ops[5].Revision = 4 }},
		{"a failed branch with another state", "rather than", func(s *scene) {
			s.r.ops[3].Answer.(*pb.TxnResponse).Responses[0].GetResponseRange().Kvs[0].Value = []byte("x")
		}},
		{"a stale read", "where 9 was known", func(s *scene) { s.r.reads[0].Header = 8 }},
		{"a read without a key", "rather than", func(s *scene) {
			a := s.r.reads[0].Answer.(*pb.RangeResponse)
			a.Kvs = a.Kvs[1:]
		}},
		{"a read at an old revision that changed", "revision:3", func(s *scene) {
			s.r.reads[1].Answer.(*pb.RangeResponse).Kvs[0].Value = []byte("x")
		}},
		{"a revision in a header beyond the account", "clients received revision 10", func(s *scene) { s.r.reads[0].Header = 10; s.r.newest = 10 }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newScene()
			c.spoil(s)
			found := strings.Join(NewVerifier(s.r, 1).Round(s.account), "\n")
			require.Contains(t, found, c.want)
		})
	}
}
