package server

import (
	"context"

	"google.golang.org/grpc"
)

// Router knows who leads. Its method may be called by several goroutines.
type Router interface {
	// Leader returns a connection to the node that leads, one of a peer.Pool's;
	// self says that this node leads itself. It waits for a leader until ctx ends;
	// then its error wraps backend.ErrNotServing.
	Leader(ctx context.Context) (conn *grpc.ClientConn, self bool, err error)
}
