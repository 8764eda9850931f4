package server

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// Clients may compress their requests with gzip, as with etcd. The limit on a request applies
// to its uncompressed size.
func TestCompressedRequests(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.MaxRequestBytes = 1 << 20 })
	kv := pb.NewKVClient(dial(t, s))
	value := []byte(strings.Repeat("v", 1<<19))
	_, err := kv.Put(testContext(t), &pb.PutRequest{Key: key, Value: value}, grpc.UseCompressor("gzip"))
	require.NoError(t, err)
	got, err := kv.Range(testContext(t), &pb.RangeRequest{Key: key}, grpc.UseCompressor("gzip"))
	require.NoError(t, err)
	require.Equal(t, value, got.Kvs[0].Value)
	_, err = kv.Put(testContext(t), &pb.PutRequest{Key: key, Value: []byte(strings.Repeat("v", 2<<20))},
		grpc.UseCompressor("gzip"))
	require.ErrorContains(t, err, "larger than max")
}
