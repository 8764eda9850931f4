package etcd

import (
	"context"
	"log/slog"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
)

// maintenanceServer serves etcd's Maintenance service.
type maintenanceServer struct {
	pb.UnsafeMaintenanceServer

	alarms    Alarms
	exporter  Exporter
	space     Defragmenter
	guard     *guard.Guard
	headers   headers
	mover     LeaderMover // nil: this node always leads
	members   func() []member.Member
	snapshots *snapshot.Maker
	log       *slog.Logger
}

// Status describes the node. Its raft index is the number of commits.
func (s *maintenanceServer) Status(ctx context.Context, _ *pb.StatusRequest) (*pb.StatusResponse, error) {
	if _, err := s.guard.AnyUser(ctx); err != nil {
		return nil, err
	}
	st := s.headers.node.Status()
	out := &pb.StatusResponse{
		Header:           s.headers.at(st.Revision),
		Version:          Version,
		StorageVersion:   StorageVersion,
		DbSize:           st.DBSize,
		DbSizeInUse:      st.DBSizeInUse,
		DbSizeQuota:      st.QuotaBytes,
		RaftIndex:        uint64(st.Sequence),
		RaftAppliedIndex: uint64(st.Sequence),
		RaftTerm:         uint64(st.Term),
		DowngradeInfo:    &pb.DowngradeInfo{},
	}
	if out.Leader = st.Leader; st.NotServing != nil {
		out.Errors = append(out.Errors, rpctypes.ErrorDesc(rpctypes.ErrGRPCNoLeader))
	}
	for _, a := range s.alarms.All() {
		out.Errors = append(out.Errors, alarmMember(a).String())
	}
	return out, nil
}

// Alarm lists, raises or disarms alarms.
func (s *maintenanceServer) Alarm(ctx context.Context, r *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	authorize := s.guard.Admin
	if r.Action == pb.AlarmRequest_GET {
		authorize = s.guard.AnyUser
	}
	permit, err := authorize(ctx)
	if err != nil {
		return nil, err
	}
	alarm := quota.Alarm{MemberID: r.MemberID, Type: int32(r.Alarm)}
	if _, ok := pb.AlarmType_name[alarm.Type]; !ok {
		return nil, status.Errorf(codes.InvalidArgument, "sqlbrain: unknown alarm type %d", alarm.Type)
	}
	var alarms []quota.Alarm
	switch r.Action {
	case pb.AlarmRequest_GET:
		var all []quota.Alarm
		all, err = s.alarms.List(ctx, permit)
		for _, a := range all {
			if alarm.Type == quota.AlarmNone || a.Type == alarm.Type {
				alarms = append(alarms, a)
			}
		}
	case pb.AlarmRequest_ACTIVATE:
		if alarm.Type != quota.AlarmNone {
			alarms, err = s.alarms.Raise(ctx, permit, alarm)
		}
	case pb.AlarmRequest_DEACTIVATE:
		alarms, err = s.alarms.Disarm(ctx, permit, alarm)
	default:
		err = status.Errorf(codes.InvalidArgument, "sqlbrain: unknown alarm action %d", r.Action)
	}
	if err != nil {
		return nil, err
	}
	out := &pb.AlarmResponse{Header: s.headers.now()}
	for _, a := range alarms {
		out.Alarms = append(out.Alarms, alarmMember(a))
	}
	return out, nil
}

func alarmMember(a quota.Alarm) *pb.AlarmMember {
	return &pb.AlarmMember{MemberID: a.MemberID, Alarm: pb.AlarmType(a.Type)}
}

// Hash hashes the whole table.
func (s *maintenanceServer) Hash(ctx context.Context, _ *pb.HashRequest) (*pb.HashResponse, error) {
	permit, err := s.guard.Admin(ctx)
	if err != nil {
		return nil, err
	}
	h, err := s.exporter.Hash(ctx, permit)
	if err != nil {
		return nil, err
	}
	return &pb.HashResponse{Header: s.headers.now(), Hash: h}, nil
}

// HashKV hashes the versions of keys up to a revision.
func (s *maintenanceServer) HashKV(ctx context.Context, r *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	permit, err := s.guard.Admin(ctx)
	if err != nil {
		return nil, err
	}
	h, err := s.exporter.HashKV(ctx, permit, r.Revision, snapshot.EncodeValue)
	if err != nil {
		return nil, err
	}
	return &pb.HashKVResponse{
		Header:          s.headers.at(h.Revision),
		Hash:            h.Hash,
		HashRevision:    h.HashRevision,
		CompactRevision: h.CompactRevision,
	}, nil
}

// Defragment lets the database give unused space back. As in etcd the answer has
// no header.
func (s *maintenanceServer) Defragment(ctx context.Context, _ *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	permit, err := s.guard.Admin(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.space.Defragment(ctx, permit); err != nil {
		return nil, err
	}
	return &pb.DefragmentResponse{}, nil
}

// MoveLeader is for the leader only, and succeeds at once for itself. As in etcd
// the answer has no header.
func (s *maintenanceServer) MoveLeader(ctx context.Context, r *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	if _, err := s.guard.Admin(ctx); err != nil {
		return nil, err
	}
	if s.mover != nil {
		if err := s.mover.MoveLeader(ctx, r.TargetID); err != nil {
			return nil, err
		}
		return &pb.MoveLeaderResponse{}, nil
	}
	if s.headers.node.Status().NotServing != nil {
		return nil, rpctypes.ErrGRPCNotLeader
	}
	if r.TargetID != s.headers.node.MemberID() {
		return nil, rpctypes.ErrGRPCBadLeaderTransferee
	}
	return &pb.MoveLeaderResponse{}, nil
}

func (s *maintenanceServer) Downgrade(ctx context.Context, _ *pb.DowngradeRequest) (*pb.DowngradeResponse, error) {
	if _, err := s.guard.Admin(ctx); err != nil {
		return nil, err
	}
	return nil, unsupported("downgrades are")
}
