package durable

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// gate is the endpoint of the clients that compact. It forwards their requests to the nodes, a compaction once the
// archive has what that may remove.
type gate struct {
	pb.UnimplementedKVServer
	archive *Archive
	nodes   pb.KVClient
}

// Gate returns an endpoint that all compactions must use, until t ends. It has what traffic needs to compact.
func (a *Archive) Gate(t testing.TB, endpoints []string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer()
	nodes := pb.NewKVClient(harness.ClientOf(t, endpoints...).ActiveConnection())
	pb.RegisterKVServer(server, &gate{archive: a, nodes: nodes})
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		assert.NoError(t, <-served)
	})
	return "http://" + listener.Addr().String()
}

func (g *gate) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	if err := g.archive.copy(ctx); err != nil {
		return nil, status.Error(codes.Unavailable, "the archive cannot read the table: "+err.Error())
	}
	return g.nodes.Compact(ctx, r)
}

func (g *gate) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	return g.nodes.Range(ctx, r)
}

func (g *gate) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	return g.nodes.Txn(ctx, r)
}
