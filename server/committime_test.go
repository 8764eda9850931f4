package server

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/replica"
)

// TestClientsAskForTheTimeOfARevision: whose commits are an hour apart.
func TestClientsAskForTheTimeOfARevision(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	own := replica.DefaultConfig()
	own.Exclusive, own.CommitClock = true, func() time.Time { at = at.Add(time.Hour); return at }
	kv := pb.NewKVClient(dial(t, startReplicaOf(t, own)))
	ask := metadata.AppendToOutgoingContext(t.Context(), etcd.CommitTimeKey, "1")
	var header metadata.MD
	timeOf := func() []string { return header.Get(etcd.CommitTimeKey) }

	_, err := kv.Range(ask, &pb.RangeRequest{Key: key}, grpc.Header(&header))
	require.NoError(t, err)
	require.Empty(t, timeOf(), "nothing was committed")
	for i := range 2 {
		_, err = kv.Put(ask, &pb.PutRequest{Key: key, Value: []byte(strconv.Itoa(i))}, grpc.Header(&header))
		require.NoError(t, err)
		require.Equal(t, []string{at.Format("2006-01-02T15:04:05.000Z")}, timeOf())
	}
	_, err = kv.Range(ask, &pb.RangeRequest{Key: key}, grpc.Header(&header))
	require.NoError(t, err)
	require.Equal(t, []string{"2026-01-01T02:00:00.000Z"}, timeOf(), "of the current revision")
	_, err = kv.Range(ask, &pb.RangeRequest{Key: key, Revision: 2}, grpc.Header(&header))
	require.NoError(t, err)
	require.Equal(t, []string{"2026-01-01T01:00:00.000Z"}, timeOf(), "of the revision that was asked for")
	_, err = kv.Put(t.Context(), &pb.PutRequest{Key: key}, grpc.Header(&header))
	require.NoError(t, err)
	require.Empty(t, timeOf(), "the client did not ask")
}
