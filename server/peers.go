package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/peer"
)

// Connections between members are kept and watched by both sides.
const (
	peerPingMinTime  = 5 * time.Second // gRPC's clients ping every 10 s at most
	peerPingInterval = 10 * time.Second
	peerPingTimeout  = 3 * time.Second
)

// newPeerGRPC returns the gRPC server behind the peer URLs: sqlbrain.Peer, and the
// handlers that other members forward their clients' calls to. Messages have the
// bound that the forwarding member's clients have. Rates are not bounded here, as the
// forwarding member has done so. Handlers check requests again.
func newPeerGRPC(cfg Config, sv *services, ss *streams) *grpc.Server {
	log := &requestLog{log: cfg.Logger, slow: cfg.SlowRequest, count: sv.slow, forwarded: true}
	front := &peerFront{streams: ss, log: cfg.Logger}
	s := grpc.NewServer(append(traced(cfg),
		grpc.Creds(cfg.PeerCredentials),
		grpc.ChainUnaryInterceptor(peer.CheckUnary(cfg.PeerNode), log.unary, front.unary),
		grpc.ChainStreamInterceptor(peer.CheckStream(cfg.PeerNode), front.stream),
		grpc.ConnectionTimeout(cfg.headTimeout),
		grpc.MaxRecvMsgSize(cfg.MaxRequestBytes+grpcOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: peerPingMinTime, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: peerPingInterval, Timeout: peerPingTimeout}),
	)...)
	sv.registerForPeers(s)
	peer.Register(s, cfg.PeerNode)
	return s
}

// peerFront is what a member's call passes before and after its handler. It says
// unmistakably when a call was not executed because this node does not lead; only
// then may the member try elsewhere. Nothing is forwarded from here: two nodes that
// take each other for the leader would never end.
type peerFront struct {
	streams *streams
	log     *slog.Logger
}

func (f *peerFront) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	resp, err := handler(auth.From(ctx, auth.Peer), req)
	if errors.Is(err, backend.ErrNotLeader) {
		if err := grpc.SetTrailer(ctx, metadata.Pairs(notLeaderKey, "true")); err != nil {
			return nil, err
		}
	}
	return resp, answer(ctx, f.log, info.FullMethod, err)
}

func (f *peerFront) stream(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	ss = sourcedStream{ss, auth.From(ss.Context(), auth.Peer)}
	err := f.streams.run(ss, info.FullMethod, false, func(ss grpc.ServerStream) error { return handler(srv, ss) })
	return answer(ss.Context(), f.log, info.FullMethod, err)
}
