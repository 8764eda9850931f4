package server

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// A follower forwards each message of a LeaseKeepAlive stream by a call of its
// own. Thousands of streams then are no streams at the leader, a change of leader
// is a call made again, and the answers of a stream keep their order since it asks
// one at a time.
const (
	keepAliveMethod = "/etcdserverpb.Lease/LeaseKeepAlive"
	renewMethod     = "/sqlbrain.Forward/LeaseKeepAlive"
)

// A follower that has checked a password asks the leader for the token, as etcd's
// members ask each other: without the password.
const (
	authenticateMethod = "/etcdserverpb.Auth/Authenticate"
	issueMethod        = "/sqlbrain.Forward/Authenticate"
)

// forwardDesc is written by hand, as the messages are etcd's:
//
//	service Forward {
//	  // As one message of etcd's stream, and its answer.
//	  rpc LeaseKeepAlive(etcdserverpb.LeaseKeepAliveRequest) returns (etcdserverpb.LeaseKeepAliveResponse);
//	  // A token for a user whose password was checked; simple_token is its first part.
//	  rpc Authenticate(etcdserverpb.InternalAuthenticateRequest) returns (etcdserverpb.AuthenticateResponse);
//	}
var forwardDesc = grpc.ServiceDesc{
	ServiceName: "sqlbrain.Forward",
	HandlerType: (*forwardHandlers)(nil),
	Methods: []grpc.MethodDesc{
		{MethodName: "LeaseKeepAlive", Handler: handleRenew},
		{MethodName: "Authenticate", Handler: handleIssue},
	},
}

type forwardHandlers interface {
	renewHere(ctx context.Context, req any) (any, error)
	issueHere(ctx context.Context, req any) (any, error)
}

// forwarded are the handlers.
type forwarded struct {
	*leaseServer
	*authServer
}

func handleIssue(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := new(pb.InternalAuthenticateRequest)
	if err := decode(in); err != nil {
		return nil, err
	}
	handler := srv.(forwardHandlers).issueHere
	if interceptor == nil {
		return handler(ctx, in)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: issueMethod}, handler)
}

func handleRenew(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
	in := new(pb.LeaseKeepAliveRequest)
	if err := decode(in); err != nil {
		return nil, err
	}
	handler := srv.(forwardHandlers).renewHere
	if interceptor == nil {
		return handler(ctx, in)
	}
	return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: renewMethod}, handler)
}
