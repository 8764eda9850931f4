package history

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// scene is a small history in which everything is right. Each case of
// TestVerifierFindsViolations spoils one thing.
type scene struct {
	r       *Recorder
	account []Revision
	state   *Verifier // its model is the state
}

func (s *scene) do(outcome Outcome, o Op) *Op {
	op := s.r.Begin(func(id int) Op {
		for i := range o.Puts {
			o.Puts[i].Value = Token(id)
		}
		return o
	})
	effects := s.state.effects(op, s.state.Revision())
	took := outcome == Applied || outcome == Unknown && len(effects) > 0
	if took {
		rev := Revision{Number: s.state.Revision() + 1, Events: effects}
		s.account = append(s.account, rev)
		s.state.model.Apply(rev)
	}
	switch outcome {
	case Applied, NotApplied:
		s.r.Finish(op, outcome, s.state.Revision(), nil, nil)
	default:
		s.r.Finish(op, outcome, 0, nil, errors.New("cut off"))
	}
	return op
}

func (s *scene) read(r Range, asked int64) *Read {
	read := s.r.BeginRead(Read{Range: r, Asked: asked})
	at := s.state.Revision()
	if asked > 0 {
		at = asked
	}
	s.r.FinishRead(read, s.state.Revision(), s.state.model.List(r, at))
	return read
}

func newScene() *scene {
	s := &scene{r: NewRecorder(), state: NewVerifier(nil, 1)}
	s.do(Applied, Op{Puts: []Put{{Key: "a"}}})                                       // 2, request 1
	s.do(Applied, Op{Puts: []Put{{Key: "b"}, {Key: "c"}, {Key: "d"}}})               // 3, request 2
	s.do(Applied, Op{Compare: map[string]int64{"a": 2}, Puts: []Put{{Key: "a"}}})    // 4, request 3
	s.do(NotApplied, Op{Compare: map[string]int64{"a": 2}, Puts: []Put{{Key: "a"}}}) // -, request 4
	s.do(Unknown, Op{Deletes: []Range{{Key: "b", End: "d"}}})                        // 5, request 5
	s.do(NotApplied, Op{Deletes: []Range{{Key: "b", End: "d"}}})                     // -, request 6
	s.do(Unknown, Op{Puts: []Put{{Key: "e"}}, Deletes: []Range{{Key: "d"}}})         // 6, request 7
	s.r.BeginGrant(77)
	s.r.FinishGrant(77)
	s.do(Applied, Op{Puts: []Put{{Key: "l2", Lease: 77}, {Key: "l1", Lease: 77}}})    // 7, request 8
	s.do(Applied, Op{Revoke: 77})                                                     // 8, request 9
	s.do(Applied, Op{Puts: []Put{{Key: "b"}}})                                        // 9, request 10
	s.do(Refused, Op{Puts: []Put{{Key: "never"}}, Compare: map[string]int64{"a": 1}}) // -, request 11
	s.read(Range{Key: "a", End: "z"}, 0)
	s.read(Range{Key: "a", End: "z"}, 3)
	s.read(Range{Key: "a", End: ""}, 0)
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
	late := s.r.Begin(func(id int) Op { return Op{Puts: []Put{{Key: "late", Value: Token(id)}}} })
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
	s.do(Applied, Op{Puts: []Put{{Key: "l", Lease: 78}}})                     // 10
	s.do(Unknown, Op{Deletes: []Range{{Key: "l"}}})                           // 11, which the lease's end fits as well
	s.do(Applied, Op{Puts: []Put{{Key: "l", Lease: 78}}})                     // 12
	s.do(Applied, Op{Puts: []Put{{Key: "m", Lease: 78}}})                     // 13
	end := Revision{Number: 14, Events: s.state.effects(&Op{Revoke: 78}, 13)} // which the delete does not fit
	s.state.model.Apply(end)
	s.account = append(s.account, end)
	v := NewVerifier(s.r, 1)
	require.Empty(t, v.Round(s.account))

	s.do(Applied, Op{Puts: []Put{{Key: "l"}}}) // 15
	again := Revision{Number: 16, Events: s.state.effects(&Op{Deletes: []Range{{Key: "l"}}}, 15)}
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
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(&Op{Deletes: []Range{{Key: "e"}}}, 9)})
		}},
		{"an unknown request applied twice", "applied twice, at 6 and 10", func(s *scene) {
			op := s.r.ops[6]
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(op, 9)})
		}},
		{"a refused request applied", "that must have none: request 11", func(s *scene) {
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(s.r.ops[10], 9)})
		}},
		{"a false compare applied", "that must have none: request 4", func(s *scene) {
			s.account = append(s.account, Revision{Number: 10, Events: s.state.effects(s.r.ops[3], 9)})
		}},
		{"a compare that did not hold", "a compare does not hold before it: request 3", func(s *scene) { s.r.ops[2].Compare["a"] = 3 }},
		{"a false compare that was true", "its compares hold", func(s *scene) { s.r.ops[3].Compare["a"] = 4 }},
		{"another revision acknowledged", "lost: request 10", func(s *scene) { s.r.ops[9].Revision = 12 }},
		{"one revision for two", "acknowledged twice", func(s *scene) { s.r.ops[9].Revision = 7 }},
		{"a write older than its request", "older than what was known", func(s *scene) { s.r.ops[9].MinRevision = 9 }},
		{"an unknown write older than its request", "older than what was known", func(s *scene) { s.r.ops[6].MinRevision = 6 }},
		{"an answer from the past", "answered from the past", func(s *scene) { s.r.ops[3].MinRevision = 6 }},
		{"nothing to delete, where there is", "it had to change", func(s *scene) { s.r.ops[5].Revision = 4 }},
		{"a failed branch with another state", "was answered", func(s *scene) {
			s.r.ops[3].Observed = []KV{{Key: "a", Value: "x"}}
		}},
		{"a stale read", "where 9 was known", func(s *scene) { s.r.reads[0].Header = 8 }},
		{"a read without a key", "a read of", func(s *scene) { s.r.reads[0].KVs = s.r.reads[0].KVs[1:] }},
		{"a read at an old revision that changed", "at revision 3", func(s *scene) { s.r.reads[1].KVs[0].Value = "x" }},
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
