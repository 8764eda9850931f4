package peer

import (
	"context"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Metadata of calls between nodes. Nothing that begins with MetadataPrefix is
// taken from, or handed on for, anybody else.
const (
	MetadataPrefix = "sqlbrain-"

	// clusterKey and memberKey name, in hexadecimal, who a call is meant for.
	clusterKey = MetadataPrefix + "cluster"
	memberKey  = MetadataPrefix + "member"
	// answeredKey is in the trailer of every answer that a node gave, with its
	// member id: without it, a status was made up by the connection.
	answeredKey = MetadataPrefix + "answered-by"
	// otherNodeKey is in the trailer if the node is not the one meant.
	otherNodeKey = MetadataPrefix + "other-node"
)

// Identity says who a node is.
type Identity interface {
	ClusterID() uint64
	MemberID() uint64
}

// Answered reports whether a node gave the answer that trailer came with; if not,
// the connection failed, and whether the call was executed is unknown.
func Answered(trailer metadata.MD) bool { return len(trailer.Get(answeredKey)) > 0 }

// Misdirected reports whether the node refused the call without looking at it,
// since it is not the one meant.
func Misdirected(trailer metadata.MD) bool { return len(trailer.Get(otherNodeKey)) > 0 }

// CheckUnary refuses calls that are not meant for id, and marks the answers.
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

// CheckStream does for streams what CheckUnary does for other calls.
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
	case member != "" && member != hexID(id.MemberID()):
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

// address adds to calls who they are meant for; member 0 is anybody of the cluster.
func address(ctx context.Context, cluster, member uint64) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, clusterKey, hexID(cluster))
	if member != 0 {
		ctx = metadata.AppendToOutgoingContext(ctx, memberKey, hexID(member))
	}
	return ctx
}
