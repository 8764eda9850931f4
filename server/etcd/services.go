package etcd

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"google.golang.org/grpc"

	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/snapshot"
	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// Versions of etcd that clients see. kube-apiserver asks for progress notices only if the
// version is a semantic version of a release that has them.
const (
	Version        = "3.7.3"
	ClusterVersion = "3.7.0"
	StorageVersion = "3.7.0"
)

// MessageOverhead is what a message may exceed Config.MaxRequestBytes by before gRPC refuses
// it, so that etcd's own error is the usual one. Watch responses that exceed it are split if
// the watcher allows it.
const MessageOverhead = 512 * 1024

// Config configures Services. Fields are required unless they say otherwise.
type Config struct {
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	Components Components
	Guard      *guard.Guard
	Streams    *transport.Streams
	// Connect returns a connection of this process to its own server for clients. The Lock
	// and Election services call the other services through it.
	Connect func() (*grpc.ClientConn, error)
	// Forward sends calls to the leader; nil for a node that always leads.
	Forward *forward.Forwarder
	// Mover moves the leadership; nil for a node that always leads.
	Mover LeaderMover
	// Members are the members of the cluster; nil: the node has its database to itself, and is Self.
	Members *member.Registry
	Self    member.Member
	// Audit records what clients changed and were denied; nil: off.
	Audit *audit.Log

	SnapshotDir     string // of temporary files
	MaxRequestBytes int    // limit of a request that writes, in bytes
	MaxTxnOps       int    // limit of compares, and of operations of a branch, of a transaction
}

// Services are the handlers of all RPCs. Clients and the other members of the cluster call
// the same ones; only calls of clients are forwarded. Methods may be called by several
// goroutines.
type Services struct {
	kv          *kvServer
	watch       *watchServer
	lease       *leaseServer
	cluster     *clusterServer
	maintenance *maintenanceServer
	auth        *authServer
	recipes     *concurrency // of the Lock and Election services

	console *ConsoleKeys
	audit   *auditor
	clients *front
	streams *transport.Streams
	log     *slog.Logger
}

// New returns the services. The caller ends them with Stop and Close.
func New(cfg Config) (*Services, error) {
	recipes, err := newConcurrency(cfg.Guard, cfg.Connect)
	if err != nil {
		return nil, err
	}
	parts, h := cfg.Components, headers{cfg.Components.Node}
	cluster := &clusterServer{headers: h, guard: cfg.Guard, registry: cfg.Members, self: cfg.Self}
	auditing := &auditor{log: cfg.Audit, guard: cfg.Guard}
	users := &authServer{guard: cfg.Guard, headers: h, forward: cfg.Forward, log: cfg.Logger}
	return &Services{
		kv: &kvServer{reader: parts.Reader, writer: parts.Writer, guard: cfg.Guard, headers: h,
			counts: newKVCounters(cfg.Registerer), maxBytes: cfg.MaxRequestBytes, maxOps: cfg.MaxTxnOps},
		watch: &watchServer{open: parts.Watch, guard: cfg.Guard, audit: auditing, headers: h, streams: cfg.Streams,
			log: cfg.Logger, fragmentBytes: cfg.MaxRequestBytes + MessageOverhead},
		lease: &leaseServer{lessor: parts.Lessor, guard: cfg.Guard, headers: h, streams: cfg.Streams,
			forward: cfg.Forward, maxBytes: cfg.MaxRequestBytes},
		cluster: cluster,
		maintenance: &maintenanceServer{alarms: parts.Alarms, exporter: parts.Exporter, space: parts.Space,
			guard: cfg.Guard, headers: h, mover: cfg.Mover, members: cluster.cached,
			snapshots: snapshot.NewMaker(cfg.SnapshotDir), log: cfg.Logger},
		auth:    users,
		recipes: recipes,
		console: &ConsoleKeys{browser: parts.Browser, watched: parts.Watched, guard: cfg.Guard, audit: auditing,
			logout: users.logout, log: cfg.Logger},
		audit: auditing,
		clients: &front{node: parts.Node, browser: parts.Browser, streams: cfg.Streams, log: cfg.Logger,
			requests: status.NewClientRequests(cfg.Registerer), guard: cfg.Guard, forward: cfg.Forward},
		streams: cfg.Streams,
		log:     cfg.Logger,
	}, nil
}

// ForClients registers the services on a gRPC server for clients. The server must have
// the interceptors that UnaryForClients and StreamForClients return, innermost.
func (s *Services) ForClients(g grpc.ServiceRegistrar) {
	pb.RegisterKVServer(g, s.kv)
	pb.RegisterWatchServer(g, s.watch)
	pb.RegisterLeaseServer(g, s.lease)
	pb.RegisterClusterServer(g, s.cluster)
	pb.RegisterMaintenanceServer(g, s.maintenance)
	pb.RegisterAuthServer(g, s.auth)
	v3lockpb.RegisterLockServer(g, &lockServer{concurrency: s.recipes})
	v3electionpb.RegisterElectionServer(g, &electionServer{concurrency: s.recipes})
}

// UnaryForClients returns the interceptors of calls from clients, outermost first.
func (s *Services) UnaryForClients() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{s.audit.unary, s.clients.unary}
}

// StreamForClients returns the interceptors of streams from clients, outermost first.
func (s *Services) StreamForClients() []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{s.audit.stream, s.clients.stream}
}

// ForMembers registers the services that other members forward calls to. The server must
// have the interceptors UnaryForMembers and StreamForMembers, innermost. Watches are not
// forwarded, because every member serves its own. Locks and elections are not forwarded
// either, but the calls that they make are.
func (s *Services) ForMembers(g grpc.ServiceRegistrar) {
	pb.RegisterKVServer(g, s.kv)
	pb.RegisterClusterServer(g, s.cluster)
	pb.RegisterMaintenanceServer(g, s.maintenance)
	users := *s.auth
	users.forward = nil
	pb.RegisterAuthServer(g, &users)
	lease := *s.lease
	lease.forward = nil
	pb.RegisterLeaseServer(g, &lease)
	forward.Register(g, forwarded{&lease, &users})
}

// forwarded implements forward.Handlers.
type forwarded struct {
	*leaseServer
	*authServer
}

// Members returns the members of the cluster that this node read last.
func (s *Services) Members() []member.Member { return s.cluster.cached() }

// ConsoleKeys returns what the console reads.
func (s *Services) ConsoleKeys() *ConsoleKeys {
	return s.console
}

// Stop ends the calls of the Lock and Election services, and refuses new ones. It is
// called once, before Close.
func (s *Services) Stop() { s.recipes.stop() }

// Close waits until those calls have returned, or ctx ends. Until then the server must
// answer the calls that they make.
func (s *Services) Close(ctx context.Context) { s.recipes.close(ctx) }
