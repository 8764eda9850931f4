package history

import (
	"fmt"
	"strconv"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/server/mvcc/model"
)

// The model's words for keys, and for what changed.
type (
	KV       = model.KV
	Range    = model.Range
	Event    = model.Event
	Revision = model.Revision
)

// Put is an unconditional write of a key.
type Put struct {
	Key, Value string
	Lease      int64
}

// Outcome is the result that the client received for a request.
type Outcome int

// The outcomes.
const (
	// Pending: no answer yet. Pending requests count as Unknown.
	Pending Outcome = iota
	// Applied: acknowledged, with an effect at Revision.
	Applied
	// NotApplied: acknowledged, without an effect: a compare was false, or there
	// was nothing to delete. Revision is the one in the header.
	NotApplied
	// Refused: an error that excludes any effect, also a later one.
	Refused
	// Unknown: an error that does not show whether the request took effect.
	Unknown
)

// Op is a request that writes, with its outcome. If every key in Compare
// has the mod revision named there (0: absent), then Puts and Deletes take
// effect, in this order, in one revision.
type Op struct {
	ID      int
	Compare map[string]int64
	Puts    []Put
	Deletes []Range
	// Revoke is the lease to be revoked; such an Op has no other part.
	Revoke int64
	// Request is a PutRequest, DeleteRangeRequest or TxnRequest, nil if the fields above say what is asked for.
	// All of its Answer is verified then.
	Request proto.Message
	// Twice: some branch of Request writes a key twice, so that etcd refuses it.
	Twice bool

	// MinRevision is the newest revision that any client knew when the request was sent. MaxRevision is one that the store
	// had not passed when it was answered, for a request that was refused; 0: not known.
	MinRevision, MaxRevision int64
	window

	Outcome Outcome
	// Revision is the one in the answer's header. For a Revoke it is only an
	// upper bound, as etcd fills it in later.
	Revision int64
	// Observed are the keys that the failed branch of a NotApplied op returned.
	Observed []KV
	// Answer is that to Request. Its header has only a revision.
	Answer proto.Message
	Err    error
}

// window is what was known about compactions while a request was on its way.
type window struct {
	compacted   int64 // the newest compaction that was acknowledged before the request was sent
	compactable int64 // the newest one that was asked for before the answer arrived
}

// Token is what the values written by request id start with.
func Token(id int) string { return "#" + strconv.Itoa(id) + "#" }

// tokenOf returns the id in a value, and whether there is one.
func tokenOf(value string) (int, bool) {
	if !strings.HasPrefix(value, "#") {
		return 0, false
	}
	digits, _, found := strings.Cut(value[1:], "#")
	if !found {
		return 0, false
	}
	id, err := strconv.Atoi(digits)
	return id, err == nil
}

func (o *Op) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "request %d", o.ID)
	if o.Request != nil {
		text := fmt.Sprint(o.Request)
		if len(text) > 1000 {
			text = text[:1000] + "…"
		}
		b.WriteString(" " + text)
	}
	for k, mod := range o.Compare {
		fmt.Fprintf(&b, " if mod(%q)=%d", k, mod)
	}
	for _, p := range o.Puts {
		fmt.Fprintf(&b, " put %q", p.Key)
		if p.Lease != 0 {
			fmt.Fprintf(&b, " (lease %x)", p.Lease)
		}
	}
	for _, d := range o.Deletes {
		fmt.Fprintf(&b, " delete [%q, %q)", d.Key, d.End)
	}
	if o.Revoke != 0 {
		fmt.Fprintf(&b, " revoke %x", o.Revoke)
	}
	outcome := [...]string{"pending", "applied", "not applied", "refused", "unknown"}[o.Outcome]
	fmt.Fprintf(&b, ": %s, revision %d, sent after revision %d", outcome, o.Revision, o.MinRevision)
	if o.Err != nil {
		fmt.Fprintf(&b, ", error %v", o.Err)
	}
	return b.String()
}

// Read is an answered read of a range.
type Read struct {
	Range
	// Asked is the revision asked for, 0 for the current one.
	Asked int64
	// Header is the revision in the answer's header.
	Header       int64
	Serializable bool
	MinRevision  int64
	KVs          []KV
	// Request is a RangeRequest, or a TxnRequest that only reads, nil if the fields above say what is asked for.
	// All of its Answer is verified then, or that the error of a refusal is right.
	Request, Answer proto.Message
	Err             error
	window
}

// Lease is a lease that a client tried to grant.
type Lease struct {
	ID int64
	// Granted: the grant was acknowledged. Otherwise its outcome is unknown.
	Granted bool
	// Revoking: a revocation was sent; Revoked: one was acknowledged.
	Revoking, Revoked bool
}

// RequestOp returns a request as an operation of a transaction. Any other request panics.
func RequestOp(request proto.Message) *pb.RequestOp {
	switch r := request.(type) {
	case *pb.RangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
	case *pb.PutRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
	case *pb.DeleteRangeRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	case *pb.TxnRequest:
		return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: r}}
	default:
		panic(fmt.Sprintf("a %T in a transaction", r))
	}
}
