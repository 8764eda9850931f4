package server

import (
	"cmp"
	"context"
	"crypto/tls"
	"io/fs"
	"log/slog"
	"math"
	"net"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/feed"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// The heartbeats of a member that runs keep its connection for writing open: a negative constant cannot be converted.
const _ = uint(sqlstore.WriterIdle - timing.MemberHeartbeat - 1)

// EtcdVersion is the version of etcd that clients see.
const EtcdVersion = etcd.Version

// Config configures a Server. DefaultConfig has usable values; zero means zero.
type Config struct {
	Logger  *slog.Logger // nil: discards
	Name    string       // member name
	Version string       // the product's own, for metrics

	// ListenClientURLs are http, https, unix or unixs URLs; port 0 lets the
	// system choose. At least one is needed.
	ListenClientURLs []string
	// AdvertiseClientURLs is what MemberList answers; none: the addresses listened on.
	AdvertiseClientURLs []string
	// Members are the cluster's; nil for a node that has its database to itself.
	Members *member.Registry
	// These bound the open connections of all client URLs, of all metrics URLs and of all peer URLs; 0: nothing does.
	MaxClientConnections, MaxMetricsConnections, MaxPeerConnections int
	// ListenMetricsURLs serve /metrics and the health endpoints only.
	ListenMetricsURLs []string
	TLS               tlsfiles.Config // of https and unixs listeners

	// Listen opens the listeners of all URLs, whose networks are tcp and unix; nil: the
	// operating system's network.
	Listen func(network, address string) (net.Listener, error)

	// SocketMode is the mode of the files of unix and unixs URLs; 0: what the umask leaves.
	SocketMode fs.FileMode

	// PeerURLs are http, https, unix or unixs URLs to listen on for the other
	// members; port 0 lets the system choose. Without PeerNode, or with no URL,
	// nothing listens; without Members, MemberList answers with them. PeerCredentials
	// decide on TLS, whatever the scheme.
	PeerURLs []string
	// PeerCredentials authenticate the other members. They are needed to listen.
	PeerCredentials credentials.TransportCredentials
	// PeerNode answers the other members. It may be asked as soon as Run is called.
	PeerNode feed.Node
	// Figures asks another member what its process measures, for the console; nil without PeerNode.
	Figures func(ctx context.Context, member uint64) (map[string]float64, error)
	// Examine examines the database for the console, see console.Config; nil: the console cannot.
	Examine func(ctx context.Context) (report any, err error)
	// Router says where to send what this node cannot answer since it does not
	// lead; nil for a node that always leads.
	Router forward.Router
	// Mover is asked to move the leadership; nil for a node that always leads.
	Mover etcd.LeaderMover

	// AuthToken is the kind of tokens that users get, with its options, as etcd's
	// --auth-token has them.
	AuthToken    string
	AuthTokenTTL time.Duration // how long a simple token stays valid that is not used
	BcryptCost   int           // of passwords

	MaxRequestBytes      int           // largest request that writes, in bytes
	MaxTxnOps            int           // most compares, or operations of a branch, of a transaction
	MaxConcurrentStreams uint32        // calls at a time on one connection
	AnswerBytes          int           // bytes of answers that wait for clients, see transport.Answers
	RequestBytes         int           // bytes of requests that have not arrived as a whole, see transport.Requests
	KeepAliveMinTime     time.Duration // clients may ping that often
	KeepAliveInterval    time.Duration // the server pings an idle client that often; 0: never
	KeepAliveTimeout     time.Duration // and waits that long for the answer; 0: no pings

	// SnapshotDir has the temporary files of snapshots; empty: the system's directory for such.
	SnapshotDir string

	EnableGRPCGateway bool     // serve JSON under /v3/
	CORS              []string // origins allowed to call over HTTP, "*" for all
	HostWhitelist     []string // names and addresses that HTTP clients without TLS may call, "*" for all
	EnablePprof       bool     // serve profiles under /debug/pprof/, on the metrics URLs too
	Console           bool     // serve the console under /ui/
	ConsoleWrite      bool     // it may change things while authentication is off

	RequestTimeout time.Duration // bound on a health check's reads, and on what the leader is asked
	SlowRequest    time.Duration // requests that take longer are logged as warnings
	StopTimeout    time.Duration // what calls under way get when the server stops

	// Audit records what clients changed and were denied; nil: off. The caller closes it
	// after the server.
	Audit *audit.Log
	// Registry takes the metrics and is what /metrics serves; nil: a new one.
	Registry *prometheus.Registry
	// Tracing makes spans of calls; nil: off. The caller closes it after the server.
	Tracing *tracing.Tracing
	// ExtensiveMetrics adds a latency histogram of every RPC.
	ExtensiveMetrics bool

	// Tests change handshakeTimeout and defaultIdleTimeout.
	headTimeout, idleTimeout time.Duration
	// Those of transport.NewAnswers and NewRequests; tests change them.
	answerProgressTimeout, requestProgressTimeout time.Duration
	// Tests set that of forward.Config.
	readAttempt time.Duration
}

const (
	// handshakeTimeout bounds the TLS handshake together with the bytes that distinguish
	// HTTP/2 from HTTP/1, gRPC's first settings, and the headers of an HTTP/1 request.
	handshakeTimeout = 10 * time.Second
	// answerProgressTimeout bounds the wait for the client of a snapshot, of a RangeStream, or of an answer over HTTP, to
	// take some of it. Few snapshots are sent at a time.
	answerProgressTimeout = time.Minute
	// requestProgressTimeout bounds the wait for the next bytes of a request that has begun.
	requestProgressTimeout = time.Minute
	// defaultIdleTimeout bounds the wait for a request. The HTTP server closes the
	// connection then; a connection of HTTP/2 without a first request is gRPC's, which
	// keeps idle connections open as etcd does.
	defaultIdleTimeout = 2 * time.Minute
)

// DefaultConfig returns the default configuration, which is etcd's where it has the same
// setting. It serves one local URL in plain text.
func DefaultConfig() Config {
	return Config{
		Name:                   "default",
		ListenClientURLs:       []string{"http://127.0.0.1:2379"},
		PeerURLs:               []string{"https://127.0.0.1:2380"},
		SocketMode:             0o600,
		TLS:                    tlsfiles.Config{MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS13},
		AuthToken:              guard.DefaultToken,
		AuthTokenTTL:           300 * time.Second,
		BcryptCost:             guard.DefaultBcryptCost,
		MaxRequestBytes:        1536 * 1024,
		MaxTxnOps:              128,
		MaxConcurrentStreams:   10_000,
		AnswerBytes:            32 << 20,
		RequestBytes:           32 << 20,
		KeepAliveMinTime:       5 * time.Second,
		KeepAliveInterval:      2 * time.Hour,
		KeepAliveTimeout:       20 * time.Second,
		EnableGRPCGateway:      true,
		HostWhitelist:          []string{"*"},
		RequestTimeout:         7 * time.Second,
		SlowRequest:            300 * time.Millisecond,
		StopTimeout:            5 * time.Second,
		headTimeout:            handshakeTimeout,
		answerProgressTimeout:  answerProgressTimeout,
		requestProgressTimeout: requestProgressTimeout,
		idleTimeout:            defaultIdleTimeout,
	}
}

// MaxRequestBytes bounds Config.MaxRequestBytes: gRPC's message sizes are int32.
const MaxRequestBytes = math.MaxInt32 - etcd.MessageOverhead

func (c Config) versions() status.Versions {
	return status.Versions{Etcd: EtcdVersion, Cluster: etcd.ClusterVersion, Storage: etcd.StorageVersion,
		Product: c.Version}
}

// completed returns c with what nil and empty stand for. The values are checked where they are set.
func (c Config) completed() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	c.SnapshotDir = cmp.Or(c.SnapshotDir, os.TempDir())
	return c
}
