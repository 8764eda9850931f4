package history

import (
	"cmp"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

// maxViolations bounds what is reported: one fault usually shows in many places.
const maxViolations = 20

// Verifier compares a Recorder's requests with the store's account of them. It
// is used in rounds: the load runs and ends, the account since the last round
// is read, and Round reports differences. It is not safe for concurrent use.
type Verifier struct {
	recorder *Recorder
	model    *model.State

	byToken    map[int]*Op
	byRevision map[int64]*Op // acknowledged, not yet found in the account
	deletes    []*Op         // without a token or a revision that identifies them; unclaimed
	guesses    []guess
	claimed    map[int]int64 // op id to its revision
	leases     map[int64]*Lease

	violations []string

	// Unknown counts the requests with an unknown outcome, UnknownFound those of
	// them that took effect.
	Unknown, UnknownFound int
}

// NewVerifier returns a Verifier of a store whose newest revision is base, and
// which has no keys or leases: 1 for a fresh etcd.
func NewVerifier(r *Recorder, base int64) *Verifier {
	return &Verifier{
		recorder: r, model: model.New(base),
		byToken: make(map[int]*Op), byRevision: make(map[int64]*Op), claimed: make(map[int]int64),
	}
}

// Revision is the newest one verified.
func (v *Verifier) Revision() int64 { return v.model.Revision() }

// Base is the oldest revision whose state is known.
func (v *Verifier) Base() int64 { return v.model.Base() }

// Round verifies what was recorded since the last round against account, the store's
// revisions since then. No client may be waiting for an answer. It returns the
// violations as text, nothing if there are none.
func (v *Verifier) Round(account []Revision) []string {
	v.violations = nil
	ops, reads, leases, newest := v.recorder.take()
	v.leases = leases
	for _, op := range ops {
		v.index(op)
	}
	for _, r := range account {
		v.apply(r)
	}
	if newest > v.model.Revision() {
		v.fail("clients received revision %d, the account ends at %d", newest, v.model.Revision())
	}
	for rev, op := range v.byRevision {
		v.fail("lost: %v", op)
		delete(v.byRevision, rev)
	}
	for _, op := range ops {
		v.checkAnswer(op)
	}
	for _, r := range reads {
		v.checkRead(r)
	}
	return v.violations
}

func (v *Verifier) fail(format string, args ...any) {
	if len(v.violations) < maxViolations {
		v.violations = append(v.violations, fmt.Sprintf(format, args...))
	}
}

// index makes op findable by the revision that will show its effect.
func (v *Verifier) index(op *Op) {
	if op.Outcome == Unknown || op.Outcome == Pending {
		v.Unknown++
	}
	if puts(op.Request) {
		v.byToken[op.ID] = op
	}
	switch {
	case op.Revoke != 0:
		if op.Outcome != Refused {
			v.deletes = append(v.deletes, op)
		}
	case op.Outcome == Applied:
		if other := v.byRevision[op.Revision]; other != nil {
			v.fail("revision %d was acknowledged twice:\n  %v\n  %v", op.Revision, other, op)
		}
		v.byRevision[op.Revision] = op
		if op.Revision <= v.model.Revision() {
			v.fail("acknowledged with a revision that another round has verified: %v", op)
			delete(v.byRevision, op.Revision)
		}
	case op.Outcome == Unknown || op.Outcome == Pending:
		v.deletes = append(v.deletes, op)
	}
}

// apply verifies one revision of the account and adds it to the model.
func (v *Verifier) apply(r Revision) {
	before := v.model.Revision()
	if r.Number != before+1 {
		v.fail("revision %d follows %d", r.Number, before)
	}
	op := v.identify(r, before)
	if op == nil {
		v.fail("revision %d is from nowhere: %v", r.Number, r.Events)
	} else {
		v.checkEffect(r, op, before)
	}
	v.model.Apply(r)
}

// identify returns the request that made r: by its acknowledged revision, by the
// token in its values, or by what it deletes; nil if there is none.
func (v *Verifier) identify(r Revision, before int64) *Op {
	if op := v.byRevision[r.Number]; op != nil {
		return op
	}
	var again *Op
	for _, e := range r.Events {
		id, ok := tokenOf(e.Value)
		if op := v.byToken[id]; ok && op != nil && !e.Deleted {
			if _, claimed := v.claimed[id]; !claimed {
				return op
			}
			again = op // unless a request has kept the value of an earlier one
		}
	}
	var fit []*Op
	for _, op := range v.deletes {
		if _, claimed := v.claimed[op.ID]; !claimed && v.fits(op, r, before) {
			fit = append(fit, op)
		}
	}
	if len(fit) == 0 {
		if again == nil {
			again = v.correct(r, before)
		}
		return again
	}
	// The one that had to happen earliest.
	op := slices.MinFunc(fit, func(a, b *Op) int { return cmp.Compare(v.deadline(a), v.deadline(b)) })
	v.take(op)
	if len(fit) > 1 {
		v.guesses = append(v.guesses, guess{r.Number, op, fit})
	}
	return op
}

// guess is a revision that several deletes fit, and the one that it was taken for.
type guess struct {
	revision int64
	op       *Op
	fit      []*Op
}

// correct looks for a guess whose op fits r, and which another op fits as well. It gives the
// guess the other one, and returns the op.
func (v *Verifier) correct(r Revision, before int64) *Op {
	for i := range v.guesses {
		g := &v.guesses[i]
		if !v.fits(g.op, r, before) {
			continue
		}
		for _, other := range g.fit {
			if _, claimed := v.claimed[other.ID]; !claimed {
				op := g.op
				delete(v.claimed, op.ID)
				v.claimed[other.ID], g.op = g.revision, other
				v.take(other)
				return op
			}
		}
	}
	return nil
}

// fits reports whether a delete can have made r.
func (v *Verifier) fits(op *Op, r Revision, before int64) bool {
	return op.MinRevision < r.Number &&
		(op.Outcome != Applied || op.Revision >= r.Number) &&
		slices.EqualFunc(v.effects(op, before), r.Events, sameEvent)
}

// take removes a delete that a revision has claimed.
func (v *Verifier) take(op *Op) {
	v.deletes = slices.DeleteFunc(v.deletes, func(o *Op) bool { return o == op })
}

func (v *Verifier) deadline(op *Op) int64 {
	if op.Outcome == Applied {
		return op.Revision
	}
	return 1<<63 - 1
}

// checkEffect verifies that r is what op does to the state before it, and that
// op may do that, once, now.
func (v *Verifier) checkEffect(r Revision, op *Op, before int64) {
	if first, again := v.claimed[op.ID]; again {
		v.fail("applied twice, at %d and %d: %v", first, r.Number, op)
	}
	v.claimed[op.ID] = r.Number
	if v.byRevision[r.Number] == op {
		delete(v.byRevision, r.Number)
	}
	switch op.Outcome {
	case Applied:
		if op.Revoke == 0 && op.Revision != r.Number {
			v.fail("revision %d is the effect of %v", r.Number, op)
		}
	case Pending, Unknown:
		v.UnknownFound++
	case NotApplied, Refused:
		v.fail("revision %d is the effect of a request that must have none: %v", r.Number, op)
	}
	if op.MinRevision >= r.Number {
		v.fail("revision %d is older than what was known before it was asked for: %v", r.Number, op)
	}
	if op.Request != nil {
		if x := v.model.Execute(op.Request, before); x.Err != nil {
			v.fail("revision %d is the effect of a request that etcd refuses, %v: %v", r.Number, x.Err, op)
			return
		}
	}
	if want := v.effects(op, before); !slices.EqualFunc(want, r.Events, sameEvent) {
		v.fail("revision %d: %v\n  has events  %v\n  rather than %v", r.Number, op, r.Events, want)
	}
}

// checkAnswer verifies the answer to a request that writes.
func (v *Verifier) checkAnswer(op *Op) {
	if op.Revoke != 0 {
		return
	}
	if op.Outcome == NotApplied && op.Revision < op.MinRevision {
		v.fail("answered from the past: %v", op)
	}
	v.checkResponse(op)
}

// checkRead verifies that a read shows one state, and none from the past.
func (v *Verifier) checkRead(r *Read) {
	if r.Err != nil {
		v.checkRefusal(r.Request, r.Err, r.MinRevision, r.window, r.Serializable)
		return
	}
	if !r.Serializable && r.Header < r.MinRevision {
		v.fail("a read answered at revision %d, where %d was known before it", r.Header, r.MinRevision)
	}
	if r.Header < v.model.Base() {
		v.fail("a read at revision %d, below the first one known, %d", r.Header, v.model.Base())
		return
	}
	v.compareAnswers(r.Request, r.Answer, r.Header, r.window, r.Serializable)
}

// effects returns the events that op has if it takes effect at the revision after rev, which is the newest one the
// model knows when op revokes a lease. A request that is refused as a whole has none.
func (v *Verifier) effects(op *Op, rev int64) []Event {
	if op.Revoke != 0 {
		return v.model.Revoke(op.Revoke)
	}
	x := v.model.Execute(op.Request, rev)
	if x.Err != nil {
		return nil
	}
	return x.Events
}

// puts reports whether a request puts a key in any branch.
func puts(request proto.Message) bool {
	switch r := request.(type) {
	case *pb.PutRequest:
		return true
	case *pb.TxnRequest:
		return slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *pb.RequestOp) bool {
			return op.GetRequestPut() != nil || op.GetRequestTxn() != nil && puts(op.GetRequestTxn())
		})
	}
	return false
}

// sameEvent compares all fields of two events.
func sameEvent(a, b Event) bool {
	if a.KV != b.KV || a.Deleted != b.Deleted || (a.Prev == nil) != (b.Prev == nil) {
		return false
	}
	return a.Prev == nil || *a.Prev == *b.Prev
}
