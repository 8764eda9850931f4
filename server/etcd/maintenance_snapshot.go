package etcd

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
)

// Snapshot sends etcd's backend as of the newest revision, then its hash. The file is
// made on this node's disk first. Every member can do it.
func (s *maintenanceServer) Snapshot(_ *pb.SnapshotRequest, stream pb.Maintenance_SnapshotServer) (err error) {
	ctx := stream.Context()
	permit, err := s.guard.Admin(ctx)
	if err != nil {
		return err
	}
	started := time.Now()
	var opened *export.Snapshot
	file, err := s.snapshots.Make(ctx, func() (*export.Snapshot, error) {
		var err error
		opened, err = s.backend.OpenSnapshot(ctx, permit)
		return opened, err
	}, s.about())
	if err != nil {
		return err
	}
	log := s.log.With("revision", opened.Revision, "bytes", file.Size)
	log.Info("sending a snapshot", "made_in", time.Since(started).Round(time.Millisecond))
	if err := s.send(ctx, file, stream); err != nil {
		log.Warn("the snapshot was not sent", "error", err)
		return err
	}
	log.Info("the snapshot was sent", "took", time.Since(started).Round(time.Millisecond))
	return nil
}

// errSnapshotNotTaken is the error of a client that takes nothing of its snapshot, and keeps others from being made.
var errSnapshotNotTaken = status.Error(codes.DeadlineExceeded, "sqlbrain: the client has taken nothing of the snapshot for too long")

// send sends the file, and closes it. Nothing ends a call of Send that waits for the client but the end of the
// stream, so it has a goroutine, which outlives the handler until then.
func (s *maintenanceServer) send(ctx context.Context, file *snapshot.File, stream pb.Maintenance_SnapshotServer) error {
	waiting := time.NewTimer(s.patience)
	defer waiting.Stop()
	sent := make(chan error, 1)
	s.streams.Receive(func() {
		err := file.Send(func(block []byte, remaining int64) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			err := stream.Send(&pb.SnapshotResponse{RemainingBytes: uint64(remaining), Blob: block, Version: StorageVersion})
			waiting.Reset(s.patience)
			return err
		})
		sent <- errors.Join(err, file.Close())
	})
	select {
	case err := <-sent:
		return err
	case <-waiting.C:
		return errSnapshotNotTaken
	}
}

func (s *maintenanceServer) about() snapshot.About {
	about := snapshot.About{ClusterVersion: ClusterVersion, StorageVersion: StorageVersion}
	for _, m := range s.members() {
		about.Members = append(about.Members, snapshot.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, ClientURLs: m.ClientURLs})
	}
	return about
}
