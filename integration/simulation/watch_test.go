package simulation

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// TestCompactedVersionsInWatchesAreNoticed shows the version before an event, below and above a compaction.
func TestCompactedVersionsInWatchesAreNoticed(t *testing.T) {
	for revision, wrong := range map[int64]bool{7: true, 8: false} {
		s := &watch{start: 7, created: true, compacted: 7}
		err := s.add(&pb.WatchResponse{Header: &pb.ResponseHeader{Revision: 9}, Events: []*mvccpb.Event{{
			Kv:     &mvccpb.KeyValue{Key: []byte("k"), ModRevision: revision},
			PrevKv: &mvccpb.KeyValue{Key: []byte("k"), ModRevision: 3},
		}}})
		if errors.Is(err, errWrong) != wrong {
			t.Errorf("an event of revision %d: %v", revision, err)
		}
	}
}
