package etcd

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestUnknownWatchRequestsDoNotFillTheLog: a client may send any number of them.
func TestUnknownWatchRequestsDoNotFillTheLog(t *testing.T) {
	var log bytes.Buffer
	s := &watchServer{log: slog.New(slog.NewTextHandler(&log, nil))}
	for range 100 {
		require.NoError(t, s.handle(t.Context(), nil, &pb.WatchRequest{}))
	}
	require.Empty(t, log.String())
}
