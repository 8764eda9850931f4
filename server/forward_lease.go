package server

import (
	"context"
	"path"

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
	revokeMethod       = "/sqlbrain.Forward/RevokeToken"
)

// forwardDesc is written by hand, as the messages are etcd's:
//
//	service Forward {
//	  // As one message of etcd's stream, and its answer.
//	  rpc LeaseKeepAlive(etcdserverpb.LeaseKeepAliveRequest) returns (etcdserverpb.LeaseKeepAliveResponse);
//	  // A token for a user whose password was checked; simple_token is its first part.
//	  rpc Authenticate(etcdserverpb.InternalAuthenticateRequest) returns (etcdserverpb.AuthenticateResponse);
//	  // Makes a token void; simple_token is its hash in hexadecimal.
//	  rpc RevokeToken(etcdserverpb.InternalAuthenticateRequest) returns (etcdserverpb.AuthenticateResponse);
//	}
var forwardDesc = grpc.ServiceDesc{
	ServiceName: "sqlbrain.Forward",
	HandlerType: (*forwardHandlers)(nil),
	Methods: []grpc.MethodDesc{
		forwardMethod[pb.LeaseKeepAliveRequest](renewMethod, forwardHandlers.renewHere),
		forwardMethod[pb.InternalAuthenticateRequest](issueMethod, forwardHandlers.issueHere),
		forwardMethod[pb.InternalAuthenticateRequest](revokeMethod, forwardHandlers.revokeHere),
	},
}

type forwardHandlers interface {
	renewHere(ctx context.Context, req any) (any, error)
	issueHere(ctx context.Context, req any) (any, error)
	revokeHere(ctx context.Context, req any) (any, error)
}

// forwarded are the handlers.
type forwarded struct {
	*leaseServer
	*authServer
}

// forwardMethod describes a method of that service, in the way of generated code.
func forwardMethod[Req any](fullName string, method func(h forwardHandlers, ctx context.Context, req any) (any, error)) grpc.MethodDesc {
	handle := func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(Req)
		if err := decode(in); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, req any) (any, error) { return method(srv.(forwardHandlers), ctx, req) }
		if interceptor == nil {
			return handler(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: fullName}, handler)
	}
	return grpc.MethodDesc{MethodName: path.Base(fullName), Handler: handle}
}
