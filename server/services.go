package server

import (
	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
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

	guard   *auth.Guard
	audit   *auditor
	forward *forwarder // nil: this node always leads
	slow    prometheus.Counter
}

// newServices registers the metrics that handlers count.
func newServices(cfg Config, n node, open openWatch, ss *streams, recipes *concurrency, clientURLs []string) (*services, error) {
	counts, slow := newKVCounters(), newSlowRequests()
	if err := register(cfg.Registry, append(counts.collectors(), slow)...); err != nil {
		return nil, err
	}
	guard, err := auth.New(auth.Config{
		Logger: cfg.Logger, Token: cfg.AuthToken, TokenTTL: cfg.AuthTokenTTL, BcryptCost: cfg.BcryptCost, CommonNames: cfg.TLS.ClientCertAuth,
	}, n)
	if err != nil {
		return nil, err
	}
	revision := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "etcd_debugging_auth_revision", Help: "The current revision of auth store.",
	}, func() float64 { return float64(guard.Revision()) })
	if err := register(cfg.Registry, append(guard.Collectors(), revision)...); err != nil {
		return nil, err
	}
	recipes.guard = guard
	var forward *forwarder
	if cfg.Router != nil {
		forward = newForwarder(cfg.Router, n, guard, cfg.RequestTimeout)
		if err := register(cfg.Registry, forward.outcomes, forward.unapplied); err != nil {
			return nil, err
		}
	}
	h := headers{n}
	audit := &auditor{log: cfg.Audit, guard: guard}
	members := newClusterServer(h, guard, cfg, clientURLs)
	return &services{
		kv:          &kvServer{backend: n, guard: guard, headers: h, counts: counts, maxBytes: cfg.MaxRequestBytes, maxOps: cfg.MaxTxnOps},
		watch:       &watchServer{open: open, guard: guard, audit: audit, headers: h, streams: ss, log: cfg.Logger, fragmentBytes: cfg.MaxRequestBytes + grpcOverhead},
		lease:       &leaseServer{backend: n, guard: guard, headers: h, streams: ss, forward: forward, maxBytes: cfg.MaxRequestBytes},
		cluster:     members,
		maintenance: &maintenanceServer{backend: n, guard: guard, headers: h, mover: cfg.Mover, snapshots: &snapshotServer{log: cfg.Logger, maker: snapshot.NewMaker(cfg.SnapshotDir), members: members.members}},
		auth:        &authServer{guard: guard, headers: h, forward: forward, log: cfg.Logger},
		lock:        &lockServer{concurrency: recipes},
		election:    &electionServer{concurrency: recipes},
		guard:       guard,
		audit:       audit,
		forward:     forward,
		slow:        slow,
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
	users := *sv.auth
	users.forward = nil
	pb.RegisterAuthServer(s, &users)
	lease := *sv.lease
	lease.forward = nil
	pb.RegisterLeaseServer(s, &lease)
	s.RegisterService(&forwardDesc, forwarded{&lease, &users})
}
