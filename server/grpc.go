package server

import (
	"math"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// newGRPC returns the one gRPC server behind all listeners for clients, with all
// services, and registers its metrics. health is SERVING.
func newGRPC(cfg Config, n node, sv *services, ss *streams, healthServer *health.Server) (*grpc.Server, error) {
	var options []grpcprom.ServerMetricsOption
	if cfg.ExtensiveMetrics {
		options = append(options, grpcprom.WithServerHandlingTimeHistogram())
	}
	calls := grpcprom.NewServerMetrics(options...)
	requests, bytes := newClientRequests(), newClientBytes()
	if err := register(cfg.Registry, calls, requests.vec, bytes.received, bytes.sent); err != nil {
		return nil, err
	}
	log := &requestLog{log: cfg.Logger, slow: cfg.SlowRequest, count: sv.slow}
	front := &front{id: n, streams: ss, log: cfg.Logger, requests: requests, guard: sv.guard, forward: sv.forward}

	s := grpc.NewServer(append(traced(cfg),
		grpc.Creds(newDoneHandshake()),
		grpc.ForceServerCodecV2(bytes.counted(newCodec())),
		grpc.ChainUnaryInterceptor(log.unary, calls.UnaryServerInterceptor(), sv.audit.unary, front.unary),
		grpc.ChainStreamInterceptor(calls.StreamServerInterceptor(), sv.audit.stream, front.stream),
		grpc.MaxRecvMsgSize(cfg.MaxRequestBytes+grpcOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(cfg.headTimeout),
		grpc.MaxConcurrentStreams(cfg.MaxConcurrentStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime: cfg.KeepAliveMinTime,
			// A client that has nothing to ask for now may see whether its
			// connection still works.
			PermitWithoutStream: true,
		}),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:    cfg.KeepAliveInterval,
			Timeout: cfg.KeepAliveTimeout,
		}),
	)...)
	sv.registerForClients(s)
	healthpb.RegisterHealthServer(s, healthServer)
	reflection.Register(s)
	calls.InitializeMetrics(s)
	return s, nil
}

// traced returns the option that makes spans of calls, if that is switched on.
func traced(cfg Config) []grpc.ServerOption {
	if cfg.Tracing == nil {
		return nil
	}
	return []grpc.ServerOption{grpc.StatsHandler(cfg.Tracing.Server())}
}
