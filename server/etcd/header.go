package etcd

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// headers makes the header of responses.
type headers struct{ node Node }

// at returns a header with everything in it; revision is the store's when the
// request was evaluated.
func (h headers) at(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{
		ClusterId: h.node.ClusterID(),
		MemberId:  h.node.MemberID(),
		RaftTerm:  uint64(h.node.Status().Term),
		Revision:  revision,
	}
}

// now is at the current revision.
func (h headers) now() *pb.ResponseHeader { return h.at(h.node.Revision()) }

// innerHeader is the header of an operation inside a transaction: a revision only.
func innerHeader(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }
