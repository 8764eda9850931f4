package server

import (
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/link"
	"github.com/sqlbrain/sqlbrain/server/console"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// newPeerGRPC returns the gRPC server at the peer URLs: sqlbrain.Peer, and the
// handlers that other members forward their clients' calls to. Messages have the
// bound that the forwarding member's clients have. Rates are not bounded here, as the
// forwarding member has done so. Handlers check requests again.
func newPeerGRPC(cfg Config, n node, sv *etcd.Services, log *status.RequestLog) *grpc.Server {
	s := grpc.NewServer(append(traced(cfg),
		grpc.Creds(cfg.PeerCredentials),
		grpc.ChainUnaryInterceptor(link.CheckUnary(cfg.PeerNode), log.Unary, sv.UnaryForMembers),
		grpc.ChainStreamInterceptor(link.CheckStream(cfg.PeerNode), sv.StreamForMembers),
		grpc.ConnectionTimeout(cfg.headTimeout),
		grpc.MaxRecvMsgSize(cfg.MaxRequestBytes+etcd.MessageOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.StaticStreamWindowSize(link.StreamWindow),
		grpc.StaticConnWindowSize(link.ConnectionWindow),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: timing.PeerPingMin, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: timing.PeerPing, Timeout: timing.PeerPingTimeout}),
	)...)
	sv.ForMembers(s)
	feed.Register(s, cfg.PeerNode, func() (map[string]float64, error) {
		return console.Figures(cfg.Registry, n.Node, cfg.Console)
	})
	return s
}
