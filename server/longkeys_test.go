package server

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestLongKeysOfRequestsAreNotKept: requests may name keys that no table can hold.
func TestLongKeysOfRequestsAreNotKept(t *testing.T) {
	const requests, size = 64, 1 << 20
	long := func(first string, i int) []byte {
		return append(fmt.Appendf(nil, "%s%06d", first, i), bytes.Repeat([]byte("x"), size)...)
	}
	all := []byte{0}
	for name, send := range map[string]func(kv pb.KVClient, i int) error{
		"delete": func(kv pb.KVClient, i int) error {
			_, err := kv.DeleteRange(t.Context(), &pb.DeleteRangeRequest{Key: long("a", i)})
			return err
		},
		"compare": func(kv pb.KVClient, i int) error {
			_, err := kv.Txn(t.Context(), &pb.TxnRequest{
				Compare: []*pb.Compare{{Key: long("a", i), Target: pb.Compare_VERSION}},
				Success: []*pb.RequestOp{opPut(&pb.PutRequest{Key: key})},
			})
			return err
		},
		"range": func(kv pb.KVClient, i int) error {
			_, err := kv.Range(t.Context(), &pb.RangeRequest{Key: long("a", requests-i), RangeEnd: all, Limit: 1})
			return err
		},
		"range of a transaction": func(kv pb.KVClient, i int) error {
			_, err := kv.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{
				opRange(&pb.RangeRequest{Key: long("a", requests-i), RangeEnd: all, Limit: 1}),
			}})
			return err
		},
		"count": func(kv pb.KVClient, i int) error {
			_, err := kv.Range(t.Context(), &pb.RangeRequest{Key: key, RangeEnd: long("z", i), CountOnly: true})
			return err
		},
		"stream": func(kv pb.KVClient, i int) error {
			stream, err := kv.RangeStream(t.Context(), &pb.RangeRequest{Key: long("a", requests-i), RangeEnd: all, Limit: 1})
			if err == nil {
				_, err = stream.Recv()
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := startReplica(t)
			kv := pb.NewKVClient(dial(t, s))
			for i := range 20 {
				_, err := kv.Put(t.Context(), &pb.PutRequest{Key: fmt.Appendf(nil, "z%d", i)})
				require.NoError(t, err)
			}
			before := heap()
			for i := range requests {
				require.NoError(t, send(kv, i))
			}
			heap() // empties pools
			require.Less(t, heap()-before, requests*size/4)
		})
	}
}
