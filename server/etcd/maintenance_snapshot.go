package etcd

import (
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/sqlbrain/sqlbrain/server/mvcc/export"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
)

// Snapshot sends etcd's database file as of the newest revision, then its hash. The file is
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
		opened, err = s.exporter.OpenSnapshot(ctx, permit)
		return opened, err
	}, s.about())
	if err != nil {
		return err
	}
	log := s.log.With("revision", opened.Revision, "bytes", file.Size)
	log.Info("sending a snapshot", "made_in", time.Since(started).Round(time.Millisecond))
	if err := send(file, stream); err != nil {
		log.Warn("the snapshot was not sent", "error", err)
		return err
	}
	log.Info("the snapshot was sent", "took", time.Since(started).Round(time.Millisecond))
	return nil
}

// send sends the file, and closes it.
func send(file *snapshot.File, stream pb.Maintenance_SnapshotServer) error {
	err := file.Send(func(block []byte, remaining int64) error {
		return stream.Send(&pb.SnapshotResponse{RemainingBytes: uint64(remaining), Blob: block, Version: StorageVersion})
	})
	return errors.Join(err, file.Close())
}

func (s *maintenanceServer) about() snapshot.About {
	about := snapshot.About{ClusterVersion: ClusterVersion, StorageVersion: StorageVersion}
	for _, m := range s.members() {
		about.Members = append(about.Members, snapshot.Member{ID: m.ID, Name: m.Name, PeerURLs: m.PeerURLs,
			ClientURLs: m.ClientURLs})
	}
	return about
}
