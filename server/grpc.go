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

// newGRPC returns the gRPC server of all listeners for clients, with all
// services, and registers its metrics. health is SERVING.
func newGRPC(cfg Config, r prometheus.Registerer, sv *etcd.Services, log *status.RequestLog,
	answers *transport.Answers, healthServer *health.Server) *grpc.Server {
	var options []grpcprom.ServerMetricsOption
	if cfg.ExtensiveMetrics {
		options = append(options, grpcprom.WithServerHandlingTimeHistogram())
	}
	calls := grpcprom.NewServerMetrics(options...)
	r.MustRegister(calls)

	s := grpc.NewServer(append(traced(cfg),
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
		grpc.NumStreamWorkers(streamWorkers),
		grpc.MaxConcurrentStreams(cfg.MaxConcurrentStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: cfg.KeepAliveMinTime,
			// A client that has nothing to ask for now may see whether its
			// connection still works.
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(pings(&cfg)),
	)...)
	sv.ForClients(s)
	healthpb.RegisterHealthServer(s, healthServer)
	reflection.Register(s)
	calls.InitializeMetrics(s)
	return s
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
