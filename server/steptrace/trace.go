package steptrace

import (
	"errors"
	"sync"
	"time"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// Kind is a kind of step.
type Kind string

// The kinds of steps. A step that changes the fence row, or what readers see, is recorded before it has an effect, so
// that no effect is missing if the process is killed. Answer and Shown follow. Other steps are recorded when they are
// over.
const (
	// Open is the start of a process, which found Revision in the table.
	Open Kind = "open"

	// Take, Commit, Raise and Resign send a statement that replaces Expected in the fence row by Token. Answer is the
	// Result of the last Take, Commit or Raise.
	Take   Kind = "take"
	Commit Kind = "commit"
	Raise  Kind = "raise"
	Resign Kind = "resign"
	Answer Kind = "answer"

	// Lead begins the service of a new leader.
	Lead Kind = "lead"
	// Resolve found Token in the fence row, after a commit of unknown outcome.
	Resolve Kind = "resolve"
	// Verify found Token in the fence row. If the node still leads, the step has also waited until the node shows it.
	Verify Kind = "verify"
	// Find found Revision in the fence row, on a follower.
	Find Kind = "find"

	// Show makes everything up to Revision readable. Shown: it is.
	Show  Kind = "show"
	Shown Kind = "shown"
	// Read determined Revision for a linearizable read. Leased: from memory, within the read lease.
	Read Kind = "read"

	// Stop is the end of a recording. The process continues, and its later steps are not recorded.
	Stop Kind = "stop"
)

// Result is what a node knows about a statement after it was answered, or was not.
type Result string

// The results.
const (
	Written  Result = "written"
	Conflict Result = "conflict" // not written: a row was not as expected
	Refused  Result = "refused"  // not written, for another reason
	Unknown  Result = "unknown"
)

// Step is a step of one node. Which fields it has depends on its kind.
type Step struct {
	Node string `json:"node"`
	Kind Kind   `json:"kind"`
	// At is when the step was recorded, on a clock that all nodes of a machine share. Began is when a step began that
	// looks at something.
	At       time.Duration    `json:"at"`
	Began    time.Duration    `json:"began,omitzero"`
	Token    coder.FenceToken `json:"token,omitzero"`
	Expected coder.FenceToken `json:"expected,omitzero"`
	Revision int64            `json:"revision,omitzero"`
	Result   Result           `json:"result,omitzero"`
	Leased   bool             `json:"leased,omitzero"`
}

// Trace records the steps of one node. A nil Trace records nothing. Safe for concurrent use.
type Trace struct {
	node  string
	clock func() time.Duration

	mu    sync.Mutex // the order of steps is that of their times
	write func(Step)
	close func() error // nil: nothing to close
}

// New returns a trace that gives steps to write, one at a time and in order. write must not block for long.
func New(node string, clock func() time.Duration, write func(Step)) *Trace {
	return &Trace{node: node, clock: clock, write: write}
}

// Now returns the time of a step that begins.
func (t *Trace) Now() time.Duration {
	if t == nil {
		return 0
	}
	return t.clock()
}

// Record records s, whose Node and At it sets.
func (t *Trace) Record(s Step) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s.Node, s.At = t.node, t.clock()
	t.write(s)
}

// Answer records what Commit returned for the node's last statement.
func (t *Trace) Answer(err error) {
	if t == nil {
		return
	}
	s := Step{Kind: Answer, Result: Refused}
	switch {
	case err == nil:
		s.Result = Written
	case sqlstore.IsConflict(err):
		s.Result = Conflict
	case errors.Is(err, sqlstore.ErrUncertain):
		s.Result = Unknown
	}
	t.Record(s)
}

// Close ends the recording. Later steps are not recorded.
func (t *Trace) Close() error {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.write = func(Step) {}
	if t.close == nil {
		return nil
	}
	return t.close()
}
