package etcd

import (
	"context"
	"errors"
	"io"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/mvcc"
)

// LeaseKeepAlive renews a lease for every request of the stream, in order. A
// lease that does not exist is answered with TTL 0, and the stream continues.
func (s *leaseServer) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	ctx := stream.Context()
	requests := make(chan *pb.LeaseKeepAliveRequest)
	received := make(chan error, 1)
	s.streams.Receive(func() {
		for {
			r, err := stream.Recv()
			if err != nil {
				received <- err
				return
			}
			select {
			case requests <- r:
			case <-ctx.Done():
				return
			}
		}
	})
	for {
		select {
		case r := <-requests:
			if err := s.renew(stream, r); err != nil {
				return err
			}
		case err := <-received:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// renew answers one request, by asking the leader if this node does not lead. The
// stream outlives a change of leader.
func (s *leaseServer) renew(stream pb.Lease_LeaseKeepAliveServer, r *pb.LeaseKeepAliveRequest) error {
	info := &grpc.UnaryServerInfo{Server: s, FullMethod: forward.RenewMethod}
	out, err := s.forward.Unary(stream.Context(), r, info, s.Renew)
	if err != nil {
		return err
	}
	return stream.Send(out.(*pb.LeaseKeepAliveResponse))
}

// Renew implements forward.Handlers. It makes the header before it renews: a lease revoked at the revision a
// client sees in an answer was not renewed by that answer.
func (s *leaseServer) Renew(ctx context.Context, req any) (any, error) {
	id := req.(*pb.LeaseKeepAliveRequest).ID
	out := &pb.LeaseKeepAliveResponse{Header: s.headers.now(), ID: id}
	permit, err := s.guard.LeaseRenew(ctx, id)
	if err != nil {
		return nil, err
	}
	lessor, err := s.lessor()
	if err != nil {
		return nil, err
	}
	ttl, err := lessor.KeepAlive(ctx, permit, id)
	switch {
	case errors.Is(err, mvcc.ErrLeaseNotFound):
		ttl = 0
	case err != nil:
		return nil, err
	}
	out.TTL = ttl
	return out, nil
}
