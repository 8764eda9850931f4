package model

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
)

// most is how many nodes replay.pml has.
const most = 3

// record is a line of the table that replay.pml takes its steps from, see replay.h. A step that takes effect at some
// time between two others has two records.
type record struct {
	kind, node int
	at         time.Duration
	value      coder.FenceToken
	expected   coder.FenceToken
	arg        int
	step       int // index of the step that the record is made from
}

// The kinds of records, as in replay.pml.
const (
	opens = iota + 1
	opened
	takes
	commits
	raises
	resigns
	answer
	leads
	resolves
	resolved
	looks
	looked
	finds
	found
	shows
	shown
	reads
	hasRead
)

// results are the results of an answer, as in replay.pml.
var results = map[steptrace.Result]int{steptrace.Written: 1, steptrace.Conflict: 2, steptrace.Refused: 3,
	steptrace.Unknown: 4}

// statements are the kinds of steps that send one; pairs those that begin at one time and are over at another.
var (
	statements = map[steptrace.Kind]int{steptrace.Take: takes, steptrace.Commit: commits, steptrace.Raise: raises,
		steptrace.Resign: resigns}
	pairs = map[steptrace.Kind][2]int{
		steptrace.Open: {opens, opened}, steptrace.Resolve: {resolves, resolved}, steptrace.Verify: {looks, looked},
		steptrace.Find: {finds, found}, steptrace.Read: {reads, hasRead},
	}
)

// table is a run as records, in the order of time.
type table struct {
	first   coder.FenceToken // the fence row before
	nodes   []string
	records []record
	reads   int // reads that are validated
}

// newTable makes records of steps, which must be in the order of time. Steps after a Stop are left out: those of its
// node are missing. A beginning of a run is a run.
func newTable(steps []steptrace.Step) (*table, error) {
	if i := slices.IndexFunc(steps, func(s steptrace.Step) bool { return s.Kind == steptrace.Stop }); i >= 0 {
		steps = steps[:i]
	}
	t := &table{}
	if err := t.findNodes(steps); err != nil {
		return nil, err
	}
	shownUpTo := make([]int64, len(t.nodes))
	for i, s := range steps {
		r := record{node: slices.Index(t.nodes, s.Node), at: s.At, value: s.Token, expected: s.Expected, step: i}
		if r.value.Revision == 0 {
			r.value.Revision = s.Revision
		}
		switch {
		case s.Kind == steptrace.Find && s.Revision <= shownUpTo[r.node]:
			continue // nothing new
		case s.Kind == steptrace.Open:
			shownUpTo[r.node] = 0
		case s.Kind == steptrace.Shown:
			shownUpTo[r.node] = s.Revision
		}
		switch {
		case statements[s.Kind] != 0:
			r.kind = statements[s.Kind]
		case pairs[s.Kind] != [2]int{}:
			begins := r
			begins.at, begins.kind, r.kind = s.Began, pairs[s.Kind][0], pairs[s.Kind][1]
			if s.Leased {
				r.arg = 1
			}
			t.records = append(t.records, begins)
		case s.Kind == steptrace.Answer:
			r.kind, r.arg = answer, results[s.Result]
			if s.Result == steptrace.Conflict && !isResolved(steps[i+1:], s.Node) {
				r.arg = results[steptrace.Refused]
			}
		case s.Kind == steptrace.Lead:
			r.kind = leads
		case s.Kind == steptrace.Show:
			r.kind = shows
		case s.Kind == steptrace.Shown:
			r.kind = shown
		default:
			return nil, fmt.Errorf("step %d of the run has the unknown kind %q", i, s.Kind)
		}
		t.records = append(t.records, r)
	}
	slices.SortStableFunc(t.records, func(a, b record) int { return cmp.Compare(a.at, b.at) })
	t.thinReads()
	return t, t.check()
}

// isResolved reports whether the node's next step about the fence row resolves a commit that conflicted. A pipeline
// that expected the conflict of another row does not.
func isResolved(next []steptrace.Step, node string) bool {
	for _, s := range next {
		if s.Node != node {
			continue
		}
		switch s.Kind {
		case steptrace.Commit:
			return false
		case steptrace.Resolve, steptrace.Take, steptrace.Resign, steptrace.Open:
			return true
		}
	}
	return true
}

// findNodes finds the nodes and the first value of the fence row. The node that changes it first is the first one, as
// in the model.
func (t *table) findNodes(steps []steptrace.Step) error {
	for _, s := range steps {
		if s.Kind == steptrace.Take {
			t.nodes = []string{s.Node}
			t.first = s.Expected
			break
		}
	}
	if t.first == (coder.FenceToken{}) {
		t.first = coder.FenceToken{Revision: 1, Attempt: -1} // no row, and no leader before
	}
	for _, s := range steps {
		if !slices.Contains(t.nodes, s.Node) {
			t.nodes = append(t.nodes, s.Node)
		}
	}
	if len(t.nodes) > most {
		return fmt.Errorf("the run has the nodes %v, the model only %d", t.nodes, most)
	}
	return nil
}

// thinReads leaves one read of each node at a time: the model follows that many.
func (t *table) thinReads() {
	var open [most]int // the step that reads, plus 1
	t.records = slices.DeleteFunc(t.records, func(r record) bool {
		switch r.kind {
		case opens:
			open[r.node] = 0
		case reads:
			if open[r.node] != 0 {
				return true
			}
			open[r.node] = r.step + 1
		case hasRead:
			if open[r.node] != r.step+1 {
				return true
			}
			open[r.node] = 0
			t.reads++
		}
		return false
	})
}

// resigned is the attempt number of a leader that has stopped, as in fence.pml.
const resigned = 255

// check reports values that are too large for the model.
func (t *table) check() error {
	for _, r := range t.records {
		for _, c := range []coder.FenceToken{r.value, r.expected} {
			if max(c.Sequence, c.Term, c.Revision) > math.MaxInt32 || c.Attempt >= resigned {
				return fmt.Errorf("%+v is too large for the model", c)
			}
		}
	}
	return nil
}

func attempt(c coder.FenceToken) int64 {
	if c.IsResigned() {
		return resigned
	}
	return c.Attempt
}

// text returns the table as replay.h reads it.
func (t *table) text() []byte {
	var b []byte
	line := func(values ...int64) {
		for _, v := range values {
			b = fmt.Appendf(b, "%d ", v)
		}
		b[len(b)-1] = '\n'
	}
	line(0, 0, t.first.Sequence, t.first.Term, t.first.Revision, attempt(t.first), 0, 0, 0, 0)
	var last time.Duration
	for i, r := range t.records {
		elapsed := time.Duration(0)
		if i > 0 { // longer than a second is as good as a second
			elapsed = min(r.at.Truncate(time.Microsecond)-last.Truncate(time.Microsecond), time.Second)
		}
		last = r.at
		line(int64(r.kind), int64(r.node), r.value.Sequence, r.value.Term, r.value.Revision, attempt(r.value),
			r.expected.Sequence, r.expected.Term, int64(r.arg), elapsed.Microseconds())
	}
	return b
}
