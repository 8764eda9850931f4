package etcd

import pb "go.etcd.io/etcd/api/v3/etcdserverpb"

// headers makes the header of responses.
type headers struct{ id identity }

// at returns a header with everything in it; revision is the store's when the
// request was evaluated.
func (h headers) at(revision int64) *pb.ResponseHeader {
	return &pb.ResponseHeader{
		ClusterId: h.id.ClusterID(),
		MemberId:  h.id.MemberID(),
		RaftTerm:  uint64(h.id.Status().Term),
		Revision:  revision,
	}
}

// now is at the current revision.
func (h headers) now() *pb.ResponseHeader { return h.at(h.id.Revision()) }

// innerHeader is the header of an operation inside a transaction: a revision only.
func innerHeader(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }
