package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
)

// clusterServer serves etcd's Cluster service. As in etcd its headers have no
// revision. Package member documents the changes.
type clusterServer struct {
	pb.UnsafeClusterServer

	headers  headers
	guard    *guard.Guard
	registry *member.Registry // nil: the node has its database to itself
	self     member.Member    // without a registry
}

// MemberList names the members: as the table has them if that is asked for, else
// as this node last saw them.
func (s *clusterServer) MemberList(ctx context.Context, r *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	if _, err := s.guard.AnyUser(ctx); err != nil {
		return nil, err
	}
	members := s.cached()
	if r.Linearizable && s.registry != nil {
		var err error
		if members, err = s.registry.Members(ctx); err != nil {
			return nil, err
		}
	}
	return &pb.MemberListResponse{Header: s.headers.at(0), Members: membersOf(members)}, nil
}

// cached returns the members as this node last saw them.
func (s *clusterServer) cached() []member.Member {
	if s.registry == nil {
		return []member.Member{s.self}
	}
	return s.registry.Cached()
}

// MemberAdd registers a member that has not started.
func (s *clusterServer) MemberAdd(ctx context.Context, r *pb.MemberAddRequest) (*pb.MemberAddResponse, error) {
	if err := s.mayChange(ctx); err != nil {
		return nil, err
	}
	added, members, err := s.registry.Add(ctx, r.PeerURLs, r.IsLearner)
	if err != nil {
		return nil, err
	}
	return &pb.MemberAddResponse{Header: s.headers.at(0), Member: memberOf(added), Members: membersOf(members)}, nil
}

// MemberRemove takes a member out of the cluster.
func (s *clusterServer) MemberRemove(ctx context.Context, r *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse, error) {
	members, err := s.change(ctx, func() ([]member.Member, error) { return s.registry.Remove(ctx, r.ID) })
	return &pb.MemberRemoveResponse{Header: s.headers.at(0), Members: members}, err
}

// MemberUpdate sets where the other members reach one.
func (s *clusterServer) MemberUpdate(ctx context.Context, r *pb.MemberUpdateRequest) (*pb.MemberUpdateResponse, error) {
	members, err := s.change(ctx, func() ([]member.Member, error) { return s.registry.Update(ctx, r.ID, r.PeerURLs) })
	return &pb.MemberUpdateResponse{Header: s.headers.at(0), Members: members}, err
}

// MemberPromote fails: there are no learners.
func (s *clusterServer) MemberPromote(ctx context.Context,
	r *pb.MemberPromoteRequest) (*pb.MemberPromoteResponse, error) {
	members, err := s.change(ctx, func() ([]member.Member, error) { return s.registry.Promote(ctx, r.ID) })
	return &pb.MemberPromoteResponse{Header: s.headers.at(0), Members: members}, err
}

// change makes a change, and returns the members after it. gRPC drops an answer that comes with an error.
func (s *clusterServer) change(ctx context.Context, make func() ([]member.Member, error)) ([]*pb.Member, error) {
	if err := s.mayChange(ctx); err != nil {
		return nil, err
	}
	members, err := make()
	return membersOf(members), err
}

func (s *clusterServer) mayChange(ctx context.Context) error {
	if _, err := s.guard.Admin(ctx); err != nil {
		return err
	}
	if s.registry == nil {
		return errSingleMember
	}
	return nil
}

func memberOf(m member.Member) *pb.Member {
	return &pb.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs}
}

func membersOf(members []member.Member) []*pb.Member {
	out := make([]*pb.Member, len(members))
	for i, m := range members {
		out[i] = memberOf(m)
	}
	return out
}
