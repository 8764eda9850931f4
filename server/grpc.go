package server

import (
	"math"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
)

// newGRPC returns the one gRPC server behind all listeners, with all services,
// and registers its metrics. health is SERVING.
func newGRPC(cfg Config, n node, open openWatch, ss *streams, healthServer *health.Server, clientURLs []string) (*grpc.Server, error) {
	var options []grpcprom.ServerMetricsOption
	if cfg.ExtensiveMetrics {
		options = append(options, grpcprom.WithServerHandlingTimeHistogram())
	}
	calls := grpcprom.NewServerMetrics(options...)
	requests, bytes, counts := newClientRequests(), newClientBytes(), newKVCounters()
	if err := register(cfg.Registry, append(counts.collectors(), calls, requests.vec, bytes.received, bytes.sent)...); err != nil {
		return nil, err
	}
	log := &requestLog{log: cfg.Logger, slow: cfg.SlowRequest}
	front := &front{id: n, streams: ss, log: cfg.Logger, requests: requests}

	s := grpc.NewServer(
		grpc.Creds(newDoneHandshake()),
		grpc.ChainUnaryInterceptor(log.unary, calls.UnaryServerInterceptor(), front.unary),
		grpc.ChainStreamInterceptor(calls.StreamServerInterceptor(), front.stream),
		grpc.StatsHandler(bytes),
		grpc.MaxRecvMsgSize(cfg.MaxRequestBytes+grpcOverhead),
		grpc.MaxSendMsgSize(math.MaxInt32),
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
	)
	h := headers{n}
	pb.RegisterKVServer(s, &kvServer{backend: n, headers: h, counts: counts, maxBytes: cfg.MaxRequestBytes, maxOps: cfg.MaxTxnOps})
	pb.RegisterWatchServer(s, &watchServer{open: open, headers: h, streams: ss, log: cfg.Logger, fragmentBytes: cfg.MaxRequestBytes + grpcOverhead})
	pb.RegisterLeaseServer(s, &leaseServer{backend: n, headers: h, streams: ss, maxBytes: cfg.MaxRequestBytes})
	pb.RegisterClusterServer(s, newClusterServer(h, cfg, clientURLs))
	pb.RegisterMaintenanceServer(s, &maintenanceServer{backend: n, headers: h})
	pb.RegisterAuthServer(s, &authServer{headers: h})
	healthpb.RegisterHealthServer(s, healthServer)
	reflection.Register(s)
	calls.InitializeMetrics(s)
	return s, nil
}
