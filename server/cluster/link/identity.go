package link

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Metadata of calls between members. Members accept keys with MetadataPrefix only from
// other members, and never forward those of a client.
const (
	MetadataPrefix = "sqlbrain-"

	// clusterKey and memberKey are the cluster and the member that a call is meant for,
	// in hexadecimal.
	clusterKey = MetadataPrefix + "cluster"
	memberKey  = MetadataPrefix + "member"
	// answeredKey is in the trailer of every response of a member, with the member's id.
	// A status without it was produced by the connection.
	answeredKey = MetadataPrefix + "answered-by"
	// otherNodeKey is in the trailer if the call was meant for another member.
	otherNodeKey = MetadataPrefix + "other-node"
)

// Identity names this member.
type Identity interface {
	ClusterID() uint64
	MemberID() uint64
}

// Answered reports whether a member sent the response with this trailer. If not, the
// connection failed, and whether the call was executed is unknown.
func Answered(trailer metadata.MD) bool { return len(trailer.Get(answeredKey)) > 0 }

// Misdirected reports whether the call was refused before it was executed, because it
// was meant for another member.
func Misdirected(trailer metadata.MD) bool { return len(trailer.Get(otherNodeKey)) > 0 }

// CheckUnary returns an interceptor that refuses calls meant for another member than id
// and marks responses with answeredKey.
func CheckUnary(id Identity) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		trailer, refusal := check(ctx, id)
		if err := grpc.SetTrailer(ctx, trailer); err != nil {
			return nil, err
		}
		if refusal != nil {
			return nil, refusal
		}
		return handler(ctx, req)
	}
}

// CheckStream is CheckUnary for streams.
func CheckStream(id Identity) grpc.StreamServerInterceptor {
	return func(srv any, ss grpc.ServerStream, _ *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		trailer, refusal := check(ss.Context(), id)
		ss.SetTrailer(trailer)
		if refusal != nil {
			return refusal
		}
		return handler(srv, ss)
	}
}

func check(ctx context.Context, id Identity) (trailer metadata.MD, refusal error) {
	trailer = metadata.Pairs(answeredKey, hexID(id.MemberID()))
	md, _ := metadata.FromIncomingContext(ctx)
	cluster, member := first(md, clusterKey), first(md, memberKey)
	switch {
	case cluster == "":
		refusal = status.Error(codes.FailedPrecondition, "sqlbrain: this port is for the members of the cluster")
	case cluster != hexID(id.ClusterID()):
		refusal = status.Error(codes.FailedPrecondition, "sqlbrain: the call is meant for a member of another cluster")
	case member != hexID(id.MemberID()):
		refusal = status.Error(codes.FailedPrecondition, "sqlbrain: the call is meant for another member of the cluster")
	default:
		return trailer, nil
	}
	trailer.Set(otherNodeKey, "true")
	return trailer, refusal
}

func first(md metadata.MD, key string) string {
	if vs := md.Get(key); len(vs) > 0 {
		return vs[0]
	}
	return ""
}

func hexID(id uint64) string { return strconv.FormatUint(id, 16) }

// address adds the cluster and the member that calls are meant for.
func address(ctx context.Context, cluster, member uint64) context.Context {
	return metadata.AppendToOutgoingContext(ctx, clusterKey, hexID(cluster), memberKey, hexID(member))
}
