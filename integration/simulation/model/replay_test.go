package model

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// token is a value of the fence row.
func token(sequence, term, revision, attempt int64) coder.FenceToken {
	return coder.FenceToken{Sequence: sequence, Term: term, Revision: revision, Attempt: attempt}
}

// recorded is a recorded run. Its methods add steps, a millisecond after each other.
type recorded struct {
	steps []steptrace.Step
	now   time.Duration
}

func (r *recorded) pass(d time.Duration) { r.now += d }

// add adds a step. One that looks at something has begun half a millisecond before.
func (r *recorded) add(node string, s steptrace.Step) int {
	r.now += time.Millisecond
	s.Node, s.At = node, r.now
	switch s.Kind {
	case steptrace.Open, steptrace.Resolve, steptrace.Verify, steptrace.Find, steptrace.Read:
		if s.Began == 0 {
			s.Began = r.now - time.Millisecond/2
		}
	}
	r.steps = append(r.steps, s)
	return len(r.steps) - 1
}

// send adds a statement and its answer.
func (r *recorded) send(node string, kind steptrace.Kind, expected, value coder.FenceToken, result steptrace.Result) {
	r.add(node, steptrace.Step{Kind: kind, Expected: expected, Token: value})
	r.add(node, steptrace.Step{Kind: steptrace.Answer, Result: result})
}

func (r *recorded) show(node string, revision int64) {
	r.add(node, steptrace.Step{Kind: steptrace.Show, Revision: revision})
	r.add(node, steptrace.Step{Kind: steptrace.Shown, Revision: revision})
}

func (r *recorded) open(node string, revision int64) {
	r.add(node, steptrace.Step{Kind: steptrace.Open, Revision: revision})
	r.pass(timing.TakeoverWait)
	r.show(node, revision)
}

// led is a run in which n1 begins to lead, and n2 follows.
func led() *recorded {
	r := &recorded{now: time.Hour}
	r.open("n1", 1)
	r.open("n2", 1)
	r.send("n1", steptrace.Take, coder.FenceToken{}, token(1, 1, 1, 0), steptrace.Written)
	r.add("n1", steptrace.Step{Kind: steptrace.Lead, Token: token(1, 1, 1, 0)})
	return r
}

// usual is a run with most kinds of steps: n1 leads, n2 follows and takes over, n1 finds that out, n2 hands over to it.
func usual() *recorded {
	r := led()
	r.send("n1", steptrace.Commit, token(1, 1, 1, 0), token(2, 1, 2, 0), steptrace.Written)
	r.show("n1", 2)
	r.add("n1", steptrace.Step{Kind: steptrace.Read, Revision: 2, Leased: true})
	r.show("n2", 2)
	r.add("n2", steptrace.Step{Kind: steptrace.Read, Revision: 2})
	r.send("n1", steptrace.Commit, token(2, 1, 2, 0), token(3, 1, 4, 0), steptrace.Unknown) // was written
	r.add("n1", steptrace.Step{Kind: steptrace.Resolve, Token: token(3, 1, 4, 0)})
	r.show("n1", 4)
	r.send("n1", steptrace.Commit, token(3, 1, 4, 0), token(4, 1, 5, 0), steptrace.Unknown) // was not
	r.add("n1", steptrace.Step{Kind: steptrace.Resolve, Token: token(3, 1, 4, 0)})
	r.send("n1", steptrace.Raise, token(3, 1, 4, 0), token(4, 1, 4, 1), steptrace.Written)
	r.send("n1", steptrace.Commit, token(4, 1, 4, 1), token(5, 1, 5, 1), steptrace.Refused)
	r.send("n1", steptrace.Commit, token(4, 1, 4, 1), token(5, 1, 5, 1), steptrace.Written)
	r.add("n2", steptrace.Step{Kind: steptrace.Find, Revision: 5})
	r.show("n1", 5)
	r.pass(timing.TakeoverWait)
	r.add("n1", steptrace.Step{Kind: steptrace.Verify, Token: token(5, 1, 5, 1)})
	r.add("n1", steptrace.Step{Kind: steptrace.Read, Revision: 5, Leased: true})
	r.show("n2", 5)
	// The commit is on its way while n2 takes over.
	r.add("n1", steptrace.Step{Kind: steptrace.Commit, Expected: token(5, 1, 5, 1), Token: token(6, 1, 6, 1)})
	r.send("n2", steptrace.Take, token(5, 1, 5, 1), token(6, 2, 5, 0), steptrace.Written)
	r.pass(timing.TakeoverWait)
	r.add("n2", steptrace.Step{Kind: steptrace.Lead, Token: token(6, 2, 5, 0)})
	r.add("n1", steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Conflict})
	r.add("n1", steptrace.Step{Kind: steptrace.Resolve, Token: token(6, 2, 5, 0)})
	r.send("n2", steptrace.Commit, token(6, 2, 5, 0), token(7, 2, 6, 0), steptrace.Written)
	r.show("n2", 6)
	r.show("n1", 6)
	r.add("n2", steptrace.Step{Kind: steptrace.Resign, Expected: token(7, 2, 6, 0), Token: token(7, 2, 6, 0).Resigned()})
	r.send("n1", steptrace.Take, token(7, 2, 6, 0).Resigned(), token(9, 3, 6, 0), steptrace.Written)
	r.add("n1", steptrace.Step{Kind: steptrace.Lead, Token: token(9, 3, 6, 0)})
	r.open("n2", 6)
	return r
}

// deposed is a run in which n1 learns that it was deposed before it has resolved its commit. It follows, without
// resolving it.
func deposed() *recorded {
	r := led()
	r.send("n1", steptrace.Commit, token(1, 1, 1, 0), token(2, 1, 2, 0), steptrace.Unknown)
	r.send("n2", steptrace.Take, token(1, 1, 1, 0), token(2, 2, 1, 0), steptrace.Unknown)
	r.send("n2", steptrace.Take, token(2, 2, 1, 0), token(3, 3, 1, 0), steptrace.Written)
	r.pass(timing.TakeoverWait)
	r.add("n1", steptrace.Step{Kind: steptrace.Verify, Token: token(3, 3, 1, 0)})
	r.add("n2", steptrace.Step{Kind: steptrace.Lead, Token: token(3, 3, 1, 0)})
	r.send("n2", steptrace.Commit, token(3, 3, 1, 0), token(4, 3, 2, 0), steptrace.Written)
	r.show("n2", 2)
	r.show("n1", 2)
	return r
}

// frozen is a run in which n1 is frozen after it has sent a commit, learns much later that it was written, and then
// that another node leads. Meanwhile n2 makes as many commits as the model has numbers, and sends one more.
func frozen() *recorded {
	r := led()
	r.add("n1", steptrace.Step{Kind: steptrace.Commit, Expected: token(1, 1, 1, 0), Token: token(2, 1, 2, 0)})
	r.send("n2", steptrace.Take, token(2, 1, 2, 0), token(3, 2, 2, 0), steptrace.Written)
	r.pass(timing.TakeoverWait)
	r.show("n2", 2)
	r.add("n2", steptrace.Step{Kind: steptrace.Lead, Token: token(3, 2, 2, 0)})
	const numbers = 24 // BATCHES in replay.pml
	at := token(3, 2, 2, 0)
	for i := range numbers {
		next := token(at.Sequence+1, 2, at.Revision+1, 0)
		if i == numbers-1 {
			r.add("n2", steptrace.Step{Kind: steptrace.Commit, Expected: at, Token: next})
			break
		}
		r.send("n2", steptrace.Commit, at, next, steptrace.Written)
		r.show("n2", next.Revision)
		at = next
	}
	r.add("n1", steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Written})
	r.show("n1", 2)
	r.add("n1", steptrace.Step{Kind: steptrace.Verify, Token: at})
	r.add("n2", steptrace.Step{Kind: steptrace.Answer, Result: steptrace.Written})
	return r
}

// find returns the index of the k-th step of a kind of a node, from 0.
func (r *recorded) find(t *testing.T, node string, kind steptrace.Kind, k int) int {
	t.Helper()
	for i, s := range r.steps {
		if s.Node == node && s.Kind == kind {
			if k--; k < 0 {
				return i
			}
		}
	}
	t.Fatalf("no such step: %s %s", node, kind)
	return 0
}

// move makes step i happen just before step to.
func (r *recorded) move(i, to int) {
	s := r.steps[i]
	s.At = r.steps[to].At - 1
	s.Began = min(s.Began, s.At)
	r.steps = slices.Insert(slices.Delete(r.steps, i, i+1), to, s)
}

// corruption changes the usual run to one that the protocol does not have. step is a part of the description of the
// step that is refused, and reason of the reasons.
type corruption struct {
	name    string
	corrupt func(*testing.T, *recorded)
	step    string
	reason  string
}

var corruptions = []corruption{
	{"a commit before its take", func(t *testing.T, r *recorded) {
		r.move(r.find(t, "n2", steptrace.Commit, 0), r.find(t, "n2", steptrace.Take, 0))
	}, "n2 does", "does not lead"},
	{"a commit before it leads", func(t *testing.T, r *recorded) {
		r.move(r.find(t, "n2", steptrace.Commit, 0), r.find(t, "n2", steptrace.Lead, 0))
	}, "sends a commit (revision 6, term 2", "does not lead"},
	{"two leaders commit in one term", func(t *testing.T, r *recorded) {
		i := r.find(t, "n1", steptrace.Show, 2) // of revision 4
		both := &recorded{now: r.steps[i].At}
		both.send("n2", steptrace.Commit, token(3, 1, 4, 0), token(4, 1, 5, 0), steptrace.Written)
		for j := range both.steps {
			both.steps[j].At = r.steps[i].At + time.Duration(j+1)
		}
		r.steps = slices.Insert(r.steps, i+1, both.steps...)
	}, "n2 does", "does not lead"},
	{"a revision is shown that was not resolved", func(t *testing.T, r *recorded) {
		i := r.find(t, "n1", steptrace.Resolve, 0)
		r.steps = slices.Delete(r.steps, i, i+1)
	}, "makes revision 4 readable", "known to be written"},
	{"a commit that was not written is shown", func(t *testing.T, r *recorded) {
		i := r.find(t, "n1", steptrace.Resolve, 1)
		r.steps[i].Token = token(4, 1, 5, 0)
	}, "sends a raise", "must raise"},
	{"a follower shows a revision ahead of the leader", func(t *testing.T, r *recorded) {
		to := r.find(t, "n1", steptrace.Show, 1) // of revision 2
		r.move(r.find(t, "n2", steptrace.Show, 1), to)
		r.move(r.find(t, "n2", steptrace.Shown, 1), to+1)
	}, "n2 does", "no other node has shown that revision"},
	{"a follower shows what it found at once", func(t *testing.T, r *recorded) {
		to := r.find(t, "n1", steptrace.Show, 3) // of revision 5
		r.move(r.find(t, "n2", steptrace.Show, 2), to)
		r.move(r.find(t, "n2", steptrace.Shown, 2), to+1)
	}, "n2 does", "long enough before"},
	{"a sequence is left out", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n1", steptrace.Commit, 1)].Token.Sequence++
	}, "sends a commit (revision 4, term 1, sequence 4) after sequence 2", "not the next one"},
	{"a revision decreases", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n1", steptrace.Commit, 1)].Token.Revision = 1
	}, "sends a commit (revision 1", "not the next one"},
	{"a term is used again", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n2", steptrace.Take, 0)].Token.Term = 1
	}, "takes the fence row", "not the next one"},
	{"a commit builds on what another node wrote", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n1", steptrace.Commit, 1)].Expected.Sequence--
	}, "sends a commit (revision 4", "did not write"},
	{"a raise without a new attempt", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n1", steptrace.Raise, 0)].Token.Attempt = 0
	}, "sends a raise", "not the next one"},
	{"a commit after one of unknown outcome", func(t *testing.T, r *recorded) {
		i := r.find(t, "n1", steptrace.Resolve, 1)
		r.steps = slices.Delete(r.steps, i, i+3)
	}, "sends a commit (revision 5", "has not finished the commit before"},
	{"a deposed leader commits", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n1", steptrace.Answer, 7)].Result = steptrace.Written
	}, "n1 does", "cannot have been as the statement expects"},
	{"a written commit is reported as refused", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n1", steptrace.Answer, 1)].Result = steptrace.Refused
	}, "makes revision 2 readable", "known to be written"},
	{"the new leader does not wait", func(t *testing.T, r *recorded) {
		i := r.find(t, "n2", steptrace.Lead, 0)
		for j := i; j < len(r.steps); j++ {
			r.steps[j].At -= time.Millisecond * 2
			r.steps[j].Began = max(0, r.steps[j].Began-time.Millisecond*2)
		}
	}, "begins to lead", "read lease of the leader before"},
	{"a read misses what a client knows", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n2", steptrace.Read, 0)].Revision = 1
	}, "has answered a read", "newer revision"},
	{"a read of the future", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n2", steptrace.Read, 0)].Revision = 3
	}, "has answered a read", "does not show that revision"},
	{"a read within a lease that is over", func(t *testing.T, r *recorded) {
		i := r.find(t, "n1", steptrace.Verify, 0)
		r.steps = slices.Delete(r.steps, i, i+1)
	}, "has answered a read", "read lease was not valid"},
	{"a look finds what nobody wrote", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n1", steptrace.Verify, 0)].Token.Sequence++
	}, "has looked", "cannot have held"},
	{"a look does not wait for the revision that it found", func(t *testing.T, r *recorded) {
		to := r.find(t, "n1", steptrace.Show, 3)
		r.move(r.find(t, "n1", steptrace.Verify, 0), to)
		r.steps[to].Began = r.steps[to-1].At
	}, "has looked", "does not show yet"},
	{"a process opens at a revision that the table does not have", func(t *testing.T, r *recorded) {
		r.steps[r.find(t, "n2", steptrace.Open, 1)].Revision = 7
	}, "starts", "cannot have held"},
}

func TestRunsAreValidated(t *testing.T) {
	enginetest.Need(t, findTools(), ErrNoTools)
	replay, err := NewReplay(t.Context(), t.TempDir(), ReadLease)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("Accepted", func(t *testing.T) { testAccepted(t, replay) })
	for _, c := range corruptions {
		t.Run(c.name, func(t *testing.T) { c.test(t, replay) })
	}
}

func testAccepted(t *testing.T, replay *Replay) {
	for _, r := range []*recorded{usual(), deposed(), frozen()} {
		a, err := replay.Validate(t.Context(), r.steps)
		if err != nil {
			t.Fatal(err)
		}
		if a.Steps != len(r.steps) {
			t.Errorf("%+v", a)
		}
		// So is each beginning of it: all processes may be killed at any time.
		for n := range r.steps {
			if _, err := replay.Validate(t.Context(), r.steps[:n]); err != nil {
				t.Errorf("the first %d steps: %v", n, err)
			}
		}
	}
}

func (c corruption) test(t *testing.T, replay *Replay) {
	r := usual()
	c.corrupt(t, r)
	_, err := replay.Validate(t.Context(), r.steps)
	var refusal *Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("accepted, or not validated: %v", err)
	}
	if !strings.Contains(err.Error(), c.step) || !strings.Contains(strings.Join(refusal.Reasons, " "), c.reason) {
		t.Errorf("the step %q should be refused because of %q:\n%v", c.step, c.reason, err)
	}
	t.Log(err)
}

func TestStepsOfFilesAreMerged(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := file("1", `{"node":"n1","kind":"open","at":1,"revision":1}`+"\n"+
		`{"node":"n1","kind":"sh{"node":"n1","kind":"open","at":5,"revision":1}`+"\n"+
		`{"node":"n1","kind":"show","at":7,"rev`)
	two := file("2", `{"node":"n2","kind":"commit","at":3,"token":{"Sequence":4,"Term":0,"Revision":0,"Attempt":0}}`+"\n")
	steps, err := Read(one, two)
	if err != nil {
		t.Fatal(err)
	}
	want := []steptrace.Step{
		{Node: "n1", Kind: steptrace.Open, At: 1, Revision: 1},
		{Node: "n2", Kind: steptrace.Commit, At: 3, Token: token(4, 0, 0, 0)},
		{Node: "n1", Kind: steptrace.Open, At: 5, Revision: 1},
	}
	if !slices.Equal(steps, want) {
		t.Errorf("%+v", steps)
	}
	if _, err := Read(file("3", "{\n"+`{"node":"n1","kind":"open","at":1,"revision":1}`)); err == nil {
		t.Error("a line that is no step was read")
	}
}
