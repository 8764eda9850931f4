package etcd

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// leaseServer serves etcd's Lease service; LeaseKeepAlive is in lease_keepalive.go.
type leaseServer struct {
	pb.UnsafeLeaseServer

	lessor   func() (Lessor, error) // of this node's leadership
	guard    *guard.Guard
	headers  headers
	streams  *transport.Streams
	forward  *forward.Forwarder // of the messages of streams; nil: none
	maxBytes int
}

// LeaseGrant creates a lease; id 0 lets the lessor choose.
func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	permit, err := s.guard.AnyUser(ctx)
	if err != nil {
		return nil, err
	}
	if err := validateSize(&pb.InternalRaftRequest{LeaseGrant: r}, guard.Caller{}, s.maxBytes); err != nil {
		return nil, err
	}
	lessor, err := s.lessor()
	if err != nil {
		return nil, err
	}
	l, err := lessor.Grant(ctx, permit, r.ID, r.TTL)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseGrantResponse{Header: s.headers.at(l.Revision), ID: l.ID, TTL: l.GrantedTTL}, nil
}

// LeaseRevoke ends a lease and deletes its keys.
func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	permit, err := s.guard.LeaseRevoke(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	lessor, err := s.lessor()
	if err != nil {
		return nil, err
	}
	revision, err := lessor.Revoke(ctx, permit, r.ID)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: s.headers.at(revision)}, nil
}

// LeaseTimeToLive returns the remaining time of a lease; TTL -1, and no error, if the
// lease does not exist.
func (s *leaseServer) LeaseTimeToLive(ctx context.Context,
	r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	permit, err := s.guard.AnyUser(ctx)
	if err != nil {
		return nil, err
	}
	lessor, err := s.lessor()
	if err != nil {
		return nil, err
	}
	l, err := lessor.TimeToLive(ctx, permit, r.ID, r.Keys)
	if err == nil && r.Keys {
		err = s.guard.LeaseListed(ctx, l.Keys)
	}
	if err != nil {
		return nil, err
	}
	return &pb.LeaseTimeToLiveResponse{
		Header:     s.headers.now(),
		ID:         r.ID,
		TTL:        l.TTL,
		GrantedTTL: l.GrantedTTL,
		Keys:       l.Keys,
	}, nil
}

// LeaseLeases lists the leases.
func (s *leaseServer) LeaseLeases(ctx context.Context, _ *pb.LeaseLeasesRequest) (*pb.LeaseLeasesResponse, error) {
	permit, err := s.guard.Leases(ctx)
	if err != nil {
		return nil, err
	}
	lessor, err := s.lessor()
	if err != nil {
		return nil, err
	}
	ids, err := lessor.IDs(ctx, permit)
	if err != nil {
		return nil, err
	}
	leases := make([]*pb.LeaseStatus, len(ids))
	for i, id := range ids {
		leases[i] = &pb.LeaseStatus{ID: id}
	}
	return &pb.LeaseLeasesResponse{Header: s.headers.now(), Leases: leases}, nil
}
