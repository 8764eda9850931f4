package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/membership"
)

// memberRegistry is what the Cluster service needs of *membership.Registry.
type memberRegistry interface {
	Members(ctx context.Context) ([]membership.Member, error)
	Cached() []membership.Member
	Add(ctx context.Context, peerURLs []string, learner bool) (membership.Member, []membership.Member, error)
	Remove(ctx context.Context, id uint64) ([]membership.Member, error)
	Update(ctx context.Context, id uint64, peerURLs []string) ([]membership.Member, error)
	Promote(ctx context.Context, id uint64) ([]membership.Member, error)
}

var _ memberRegistry = (*membership.Registry)(nil)

// clusterServer serves etcd's Cluster service. As in etcd its headers have no
// revision. What the changes mean is said in package membership.
type clusterServer struct {
	pb.UnsafeClusterServer

	headers headers
	guard   *auth.Guard
	members memberRegistry
}

// newClusterServer serves the members of a cluster, or this node alone if
// cfg.Members is nil.
func newClusterServer(h headers, guard *auth.Guard, cfg Config, clientURLs []string) *clusterServer {
	if cfg.Members != nil {
		return &clusterServer{headers: h, guard: guard, members: cfg.Members}
	}
	return &clusterServer{headers: h, guard: guard, members: singleMember{id: h.id, name: cfg.Name, clientURLs: clientURLs}}
}

// MemberList names the members: as the table has them if that is asked for, else
// as this node last saw them.
func (s *clusterServer) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if err := s.guard.Somebody(ctx); err != nil {
		return nil, err
	}
	members := s.members.Cached()
	if r.Linearizable {
		var err error
		if members, err = s.members.Members(ctx); err != nil {
			return nil, err
		}
	}
	return &pb.MemberListResponse{Header: s.headers.at(0), Members: membersOf(members)}, nil
}

// MemberAdd registers a member that has not started.
func (s *clusterServer) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	if err := s.guard.Admin(ctx); err != nil {
		return nil, err
	}
	added, members, err := s.members.Add(ctx, r.PeerURLs, r.IsLearner)
	if err != nil {
		return nil, err
	}
	return &pb.MemberAddResponse{Header: s.headers.at(0), Member: memberOf(added), Members: membersOf(members)}, nil
}

// MemberRemove takes a member out of the cluster.
func (s *clusterServer) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	if err := s.guard.Admin(ctx); err != nil {
		return nil, err
	}
	members, err := s.members.Remove(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return &pb.MemberRemoveResponse{Header: s.headers.at(0), Members: membersOf(members)}, nil
}

// MemberUpdate sets where the other members reach one.
func (s *clusterServer) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	if err := s.guard.Admin(ctx); err != nil {
		return nil, err
	}
	members, err := s.members.Update(ctx, r.ID, r.PeerURLs)
	if err != nil {
		return nil, err
	}
	return &pb.MemberUpdateResponse{Header: s.headers.at(0), Members: membersOf(members)}, nil
}

// MemberPromote fails: there are no learners.
func (s *clusterServer) MemberPromote(ctx context.Context, r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	if err := s.guard.Admin(ctx); err != nil {
		return nil, err
	}
	members, err := s.members.Promote(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return &pb.MemberPromoteResponse{Header: s.headers.at(0), Members: membersOf(members)}, nil
}

func memberOf(m membership.Member) *pb.Member {
	return &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs}
}

func membersOf(members []membership.Member) []*pb.Member {
	out := make([]*pb.Member, len(members))
	for i, m := range members {
		out[i] = memberOf(m)
	}
	return out
}

// singleMember is the membership of a node that has its database to itself.
type singleMember struct {
	id         identity
	name       string
	clientURLs []string
}

func (s singleMember) Cached() []membership.Member {
	return []membership.Member{{ID: s.id.MemberID(), Name: s.name, ClientURLs: s.clientURLs, Alive: true}}
}

func (s singleMember) Members(context.Context) ([]membership.Member, error) { return s.Cached(), nil }

func (s singleMember) Add(context.Context, []string, bool) (membership.Member, []membership.Member, error) {
	return membership.Member{}, nil, errSingleMember
}

func (s singleMember) Remove(context.Context, uint64) ([]membership.Member, error) {
	return nil, errSingleMember
}

func (s singleMember) Update(context.Context, uint64, []string) ([]membership.Member, error) {
	return nil, errSingleMember
}

func (s singleMember) Promote(context.Context, uint64) ([]membership.Member, error) {
	return nil, errSingleMember
}
