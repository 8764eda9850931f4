package etcd

import "github.com/sqlbrain/sqlbrain/server/replica"

const (
	fakeCluster = uint64(11)
	fakeMember  = uint64(22)
	fakeTerm    = int64(3)
)

// fakeIdentity is the identity of a node at revision 100.
type fakeIdentity struct{ Node }

func (fakeIdentity) ClusterID() uint64      { return fakeCluster }
func (fakeIdentity) MemberID() uint64       { return fakeMember }
func (fakeIdentity) Revision() int64        { return 100 }
func (fakeIdentity) Status() replica.Status { return replica.Status{Revision: 100, Term: fakeTerm} }
