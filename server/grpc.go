package server

import (
	"context"
	"log/slog"
	"math"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	_ "google.golang.org/grpc/encoding/gzip" // clients may compress their requests, as with etcd
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// streamWorkers is the number of goroutines that serve calls one after the other. A new one has
// to grow its stack for nearly each call, which took 6 % of a write and 11 % of a read. Calls that find them
// all busy, for example with watches, get new goroutines.
const streamWorkers = 128

// newGRPC returns the gRPC server of all listeners for clients, and that of calls from this process, both with all
// services, and registers their metrics. health is SERVING. A connection of this process carries the calls of all
// clients, so what bounds the calls of a connection does not apply to it.
func newGRPC(cfg Config, r prometheus.Registerer, sv *etcd.Services, log *status.RequestLog,
	answers *transport.Answers, healthServer *health.Server) (clients, inProcess *grpc.Server) {
	var figures []grpcprom.ServerMetricsOption
	if cfg.ExtensiveMetrics {
		figures = append(figures, grpcprom.WithServerHandlingTimeHistogram())
	}
	calls := grpcprom.NewServerMetrics(figures...)
	r.MustRegister(calls)

	options := append(traced(cfg),
		grpc.Creds(transport.Credentials()),
		grpc.ForceServerCodecV2(status.NewClientBytes(r).Counted(transport.NewCodec())),
		grpc.ChainUnaryInterceptor(append([]grpc.UnaryServerInterceptor{answers.Unary, log.Unary,
			calls.UnaryServerInterceptor()}, sv.UnaryForClients()...)...),
		grpc.ChainStreamInterceptor(append([]grpc.StreamServerInterceptor{answers.Stream, calls.StreamServerInterceptor()},
			sv.StreamForClients()...)...),
		grpc.MaxRecvMsgSize(cfg.MaxRequestBytes+etcd.MessageOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(transport.MaxHeaderBytes),
		grpc.ConnectionTimeout(cfg.headTimeout),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: cfg.KeepAliveMinTime,
			// A client that has nothing to ask for now may see whether its
			// connection still works.
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(pings(&cfg)),
	)
	inProcess = grpc.NewServer(options...)
	clients = grpc.NewServer(append(options, grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxConcurrentStreams(cfg.MaxConcurrentStreams))...)
	for _, s := range []*grpc.Server{clients, inProcess} {
		sv.ForClients(s)
		healthpb.RegisterHealthServer(s, healthServer)
		reflection.Register(s)
	}
	calls.InitializeMetrics(clients)
	return clients, inProcess
}

// requestLog returns the log of calls, slow ones counted by slow. forwarded describes the origin of
// forwarded calls; nil on servers for clients.
func requestLog(cfg Config, slow prometheus.Counter, forwarded func(context.Context) []slog.Attr) *status.RequestLog {
	return &status.RequestLog{Log: cfg.Logger, Slow: cfg.SlowRequest, Count: slow, Forwarded: forwarded,
		ReadOnly: func(r *pb.TxnRequest) bool {
			return forward.OnlyReads(r)
		}}
}

// traced returns the option that makes spans of calls, if that is switched on.
func traced(cfg Config) []grpc.ServerOption {
	if cfg.Tracing == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(cfg.Tracing.Server())}
}

// pings says how clients are pinged. gRPC takes zeros for its own defaults; here, as in
// etcd, they mean no pings.
func pings(cfg *Config) keepalive.ServerParameters {
	if cfg.KeepAliveInterval == 0 || cfg.KeepAliveTimeout == 0 {
		return keepalive.ServerParameters{Time: math.MaxInt64}
	}
	return keepalive.ServerParameters{Time: cfg.KeepAliveInterval, Timeout: cfg.KeepAliveTimeout}
}
