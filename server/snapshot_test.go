package server

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// TestClientsThatDoNotReadKeepNoSnapshot: two snapshots are made at a time. Clients that take nothing give the place
// back.
func TestClientsThatDoNotReadKeepNoSnapshot(t *testing.T) {
	s := startReplica(t, func(c *Config) { c.SnapshotDir, c.answerProgressTimeout = t.TempDir(), 300*time.Millisecond })
	kv := pb.NewKVClient(dial(t, s))
	for i := range 8 {
		_, err := kv.Put(testContext(t), &pb.PutRequest{Key: []byte{'k', byte(i)}, Value: make([]byte, 1<<20)})
		require.NoError(t, err)
	}
	conn := narrow(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Deadline)
	defer cancel()
	take := func(conn *grpc.ClientConn) (taken pb.Maintenance_SnapshotClient) {
		eventually.True(t, "a snapshot to begin", func() bool {
			stream, err := pb.NewMaintenanceClient(conn).Snapshot(ctx, &pb.SnapshotRequest{})
			require.NoError(t, err)
			taken = stream
			_, err = stream.Recv() // a busy server may have ended it already
			return err == nil
		})
		return taken
	}
	held := []pb.Maintenance_SnapshotClient{take(conn), take(conn)}
	take(dial(t, s))
	// One of the two has lost its place. The other may not have yet, and then gets all now.
	lost := 0
	for _, stream := range held {
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		if !errors.Is(err, io.EOF) {
			requireStatus(t, err, codes.DeadlineExceeded, "the client has taken nothing")
			lost++
		}
	}
	require.Positive(t, lost)
}
