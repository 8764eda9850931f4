package server

import (
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"
)

// services are the handlers of all RPCs. Clients and the other members of the
// cluster call the same ones; only calls of clients are forwarded.
type services struct {
	kv          *kvServer
	watch       *watchServer
	lease       *leaseServer
	cluster     *clusterServer
	maintenance *maintenanceServer
	auth        *authServer
	lock        *lockServer
	election    *electionServer

	forward *forwarder // nil: this node always leads
}

// newServices registers the metrics that handlers count.
func newServices(cfg Config, n node, open openWatch, ss *streams, recipes *concurrency, clientURLs []string) (*services, error) {
	counts := newKVCounters()
	if err := register(cfg.Registry, counts.collectors()...); err != nil {
		return nil, err
	}
	var forward *forwarder
	if cfg.Router != nil {
		forward = newForwarder(cfg.Router, n, cfg.RequestTimeout)
		if err := register(cfg.Registry, forward.outcomes); err != nil {
			return nil, err
		}
	}
	h := headers{n}
	return &services{
		kv:          &kvServer{backend: n, headers: h, counts: counts, maxBytes: cfg.MaxRequestBytes, maxOps: cfg.MaxTxnOps},
		watch:       &watchServer{open: open, headers: h, streams: ss, log: cfg.Logger, fragmentBytes: cfg.MaxRequestBytes + grpcOverhead},
		lease:       &leaseServer{backend: n, headers: h, streams: ss, forward: forward, maxBytes: cfg.MaxRequestBytes},
		cluster:     newClusterServer(h, cfg, clientURLs),
		maintenance: &maintenanceServer{backend: n, headers: h, mover: cfg.Mover},
		auth:        &authServer{headers: h},
		lock:        &lockServer{concurrency: recipes},
		election:    &electionServer{concurrency: recipes},
		forward:     forward,
	}, nil
}

func (sv *services) registerForClients(s *grpc.Server) {
	pb.RegisterKVServer(s, sv.kv)
	pb.RegisterWatchServer(s, sv.watch)
	pb.RegisterLeaseServer(s, sv.lease)
	pb.RegisterClusterServer(s, sv.cluster)
	pb.RegisterMaintenanceServer(s, sv.maintenance)
	pb.RegisterAuthServer(s, sv.auth)
	v3lockpb.RegisterLockServer(s, sv.lock)
	v3electionpb.RegisterElectionServer(s, sv.election)
}

// registerForPeers adds what other members forward. Watches are not among it:
// every node has its own. Nor are locks and elections, whose parts are forwarded.
func (sv *services) registerForPeers(s *grpc.Server) {
	pb.RegisterKVServer(s, sv.kv)
	pb.RegisterClusterServer(s, sv.cluster)
	pb.RegisterMaintenanceServer(s, sv.maintenance)
	pb.RegisterAuthServer(s, sv.auth)
	lease := *sv.lease
	lease.forward = nil
	pb.RegisterLeaseServer(s, &lease)
	s.RegisterService(&forwardDesc, &lease)
}
