package server

import (
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

var key = []byte("k")

// requireStatus requires that err, of a call, has the code and the text.
func requireStatus(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	st := status.Convert(err)
	require.Equal(t, code.String(), st.Code().String(), "%v", err)
	require.Contains(t, st.Message(), text)
}

func opRange(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func opPut(r *pb.PutRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: r}}
}

func metricsURLs(s *Server) []string { return reachedURLs(s.metrics) }

// peerURLs are where members may connect as soon as New has returned. They are answered once Run is called.
func peerURLs(s *Server) []string { return reachedURLs(s.peers) }
