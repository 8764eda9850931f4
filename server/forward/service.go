package forward

import (
	"context"
	"path"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// Methods of the service that only members call. Handlers pass them to Forwarder.Unary.
//
// A follower forwards each message of a LeaseKeepAlive stream as a call. So thousands of
// streams of clients are no streams at the leader, a change of leader only repeats a call,
// and the responses of a stream keep their order since it sends one call at a time.
//
// A follower that has checked a password asks the leader for the token, as etcd's members
// ask each other: without the password.
const (
	RenewMethod        = "/sqlbrain.Forward/LeaseKeepAlive"
	AuthenticateMethod = "/sqlbrain.Forward/Authenticate"
	RevokeMethod       = "/sqlbrain.Forward/RevokeToken"

	keepAliveMethod    = "/etcdserverpb.Lease/LeaseKeepAlive"
	authenticateMethod = "/etcdserverpb.Auth/Authenticate"
)

// desc is written by hand, as the messages are etcd's:
//
//	service Forward {
//	  // As one message of etcd's stream, and its response.
//	  rpc LeaseKeepAlive(etcdserverpb.LeaseKeepAliveRequest) returns (etcdserverpb.LeaseKeepAliveResponse);
//	  // A token for a user whose password was checked; simple_token is its first part.
//	  rpc Authenticate(etcdserverpb.InternalAuthenticateRequest) returns (etcdserverpb.AuthenticateResponse);
//	  // Revokes a token; simple_token is its hash in hexadecimal.
//	  rpc RevokeToken(etcdserverpb.InternalAuthenticateRequest) returns (etcdserverpb.AuthenticateResponse);
//	}
var desc = grpc.ServiceDesc{
	ServiceName: "sqlbrain.Forward",
	HandlerType: (*Handlers)(nil),
	Methods: []grpc.MethodDesc{
		method[pb.LeaseKeepAliveRequest](RenewMethod, Handlers.Renew),
		method[pb.InternalAuthenticateRequest](AuthenticateMethod, Handlers.IssueToken),
		method[pb.InternalAuthenticateRequest](RevokeMethod, Handlers.RevokeToken),
	},
}

// Handlers execute the calls of the service on this member. Requests and responses are
// pointers to the messages that desc names. They fail with mvcc.ErrNotLeader if this member does
// not lead.
type Handlers interface {
	Renew(ctx context.Context, req any) (any, error)
	IssueToken(ctx context.Context, req any) (any, error)
	RevokeToken(ctx context.Context, req any) (any, error)
}

// Register adds the service to a gRPC server for other members.
func Register(s grpc.ServiceRegistrar, h Handlers) { s.RegisterService(&desc, h) }

// method describes a method of the service, as generated code would.
func method[Req any](fullName string, call func(h Handlers, ctx context.Context,
	req any) (any, error)) grpc.MethodDesc {
	handle := func(srv any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any,
		error) {
		in := new(Req)
		if err := decode(in); err != nil {
			return nil, err
		}
		handler := func(ctx context.Context, req any) (any, error) { return call(srv.(Handlers), ctx, req) }
		if interceptor == nil {
			return handler(ctx, in)
		}
		return interceptor(ctx, in, &grpc.UnaryServerInfo{Server: srv, FullMethod: fullName}, handler)
	}
	return grpc.MethodDesc{MethodName: path.Base(fullName), Handler: handle}
}
