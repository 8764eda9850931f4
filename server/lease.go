package server

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/backend"
)

// leaseServer serves etcd's Lease service; LeaseKeepAlive is in lease_keepalive.go.
type leaseServer struct {
	pb.UnsafeLeaseServer

	backend  leaseBackend
	guard    *auth.Guard
	headers  headers
	streams  *streams
	forward  *forwarder // of the messages of streams; nil: none
	maxBytes int
}

// LeaseGrant creates a lease; id 0 lets the backend choose.
func (s *leaseServer) LeaseGrant(ctx context.Context, r *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	if err := s.guard.Somebody(ctx); err != nil {
		return nil, err
	}
	if err := checkSize(&pb.InternalRaftRequest{LeaseGrant: r}, auth.Caller{}, s.maxBytes); err != nil {
		return nil, err
	}
	l, err := s.backend.LeaseGrant(ctx, r.ID, r.TTL)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseGrantResponse{Header: s.headers.at(l.Revision), ID: l.ID, TTL: l.GrantedTTL}, nil
}

// LeaseRevoke ends a lease and deletes its keys.
func (s *leaseServer) LeaseRevoke(ctx context.Context, r *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	ctx, err := s.guard.LeaseRevoke(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	revision, err := s.backend.LeaseRevoke(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	return &pb.LeaseRevokeResponse{Header: s.headers.at(revision)}, nil
}

// LeaseTimeToLive tells what is left of a lease; TTL -1, and no error, if there
// is no such lease.
func (s *leaseServer) LeaseTimeToLive(ctx context.Context, r *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse, error) {
	if err := s.guard.LeaseTimeToLive(ctx, r.ID, r.Keys); err != nil {
		return nil, err
	}
	l, err := s.backend.LeaseTimeToLive(ctx, r.ID, r.Keys)
	switch {
	case errors.Is(err, backend.ErrLeaseNotFound):
		l = backend.LeaseStatus{TTL: -1}
	case err != nil:
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
	if err := s.guard.Leases(ctx); err != nil {
		return nil, err
	}
	ids, err := s.backend.Leases(ctx)
	if err != nil {
		return nil, err
	}
	leases := make([]*pb.LeaseStatus, len(ids))
	for i, id := range ids {
		leases[i] = &pb.LeaseStatus{ID: id}
	}
	return &pb.LeaseLeasesResponse{Header: s.headers.now(), Leases: leases}, nil
}
