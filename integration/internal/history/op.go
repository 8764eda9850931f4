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

// Op is a request that writes, with its outcome.
type Op struct {
	ID int
	// Request is a PutRequest, DeleteRangeRequest or TxnRequest; nil for a revocation.
	Request proto.Message
	// Revoke is the lease to be revoked.
	Revoke int64
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

// Read is an answered read.
type Read struct {
	// Request is a RangeRequest, or a TxnRequest that only reads.
	Request proto.Message
	// Answer is that to Request, with the revision only in its header; nil if it was refused with Err.
	Answer proto.Message
	Err    error
	// Header is the revision in the answer's header.
	Header       int64
	Serializable bool
	MinRevision  int64
	window
}

// Strip leaves in the header of an answer what etcd would answer in its place, and returns the revision.
func Strip(answer proto.Message) (revision int64) {
	header := answer.(interface{ GetHeader() *pb.ResponseHeader }).GetHeader()
	header.ClusterId, header.MemberId, header.RaftTerm = 0, 0, 0
	return header.GetRevision()
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
