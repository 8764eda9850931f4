package server

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"

	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/auth"
	"github.com/sqlbrain/sqlbrain/server/membership"
	"github.com/sqlbrain/sqlbrain/server/peer"
	"github.com/sqlbrain/sqlbrain/server/tracing"
)

// What clients are told. kube-apiserver asks for progress notices only if the
// version is a semantic version of a release that has them.
const (
	EtcdVersion    = "3.7.3"
	ClusterVersion = "3.7.0"
	StorageVersion = "3.7.0"
)

// Config configures a Server. Zero values are replaced by the defaults named.
type Config struct {
	Logger  *slog.Logger // discards
	Name    string       // member name, "default"
	Version string       // the product's own, for metrics

	// ListenClientURLs are http, https, unix or unixs URLs; port 0 lets the
	// system choose. At least one is needed.
	ListenClientURLs []string
	// AdvertiseClientURLs is what MemberList tells; the addresses listened on.
	AdvertiseClientURLs []string
	// Members are the cluster's; nil for a node that has its database to itself.
	Members *membership.Registry
	// ListenMetricsURLs serve /metrics and the health endpoints only.
	ListenMetricsURLs []string
	TLS               TLSConfig

	// PeerURLs are http, https, unix or unixs URLs to listen on for the other
	// members; port 0 lets the system choose. Without PeerNode, or with no URL,
	// nothing listens. PeerCredentials decide on TLS, whatever the scheme.
	PeerURLs []string
	// PeerCredentials authenticate the other members. They are needed to listen.
	PeerCredentials credentials.TransportCredentials
	// PeerNode answers the other members. It may be asked as soon as Run is called.
	PeerNode peer.Node
	// Router says where to send what this node cannot answer since it does not
	// lead; nil for a node that always leads.
	Router Router
	// Mover is asked to move the leadership; nil for a node that always leads.
	Mover LeaderMover

	// AuthToken is the kind of tokens that users get, with its options, as etcd's
	// --auth-token has them; simple.
	AuthToken    string
	AuthTokenTTL time.Duration // how long a simple token stays valid that is not used; 300 s
	BcryptCost   int           // of passwords; 10

	MaxRequestBytes      int           // largest request that writes, in bytes; 1.5 MiB
	MaxTxnOps            int           // most compares, or operations of a branch, of a transaction; 128
	MaxConcurrentStreams uint32        // calls at a time on one connection; unlimited
	KeepAliveMinTime     time.Duration // clients may ping that often; 5 s
	KeepAliveInterval    time.Duration // the server pings an idle client that often; 2 h
	KeepAliveTimeout     time.Duration // and waits that long for the answer; 20 s

	// SnapshotDir has the temporary files of snapshots; the system's directory for such.
	SnapshotDir string

	EnableGRPCGateway bool     // serve JSON under /v3/
	CORS              []string // origins allowed to call over HTTP, "*" for all; none
	HostWhitelist     []string // names and addresses that HTTP clients without TLS may call, "*" for all; all
	EnablePprof       bool     // serve profiles under /debug/pprof/, on the metrics URLs too
	Console           bool     // serve the console under /ui/
	ConsoleWrite      bool     // it may change things while authentication is off

	RequestTimeout time.Duration // bound on a health check's reads, and on what the leader is asked; 7 s
	SlowRequest    time.Duration // requests that take longer are logged as warnings; 300 ms
	StopTimeout    time.Duration // what calls under way get when the server stops; 5 s

	// Audit records what clients changed and were denied; nil: off. The caller closes it
	// after the server.
	Audit *audit.Log
	// Registry takes the metrics and is what /metrics serves; a new one.
	Registry *prometheus.Registry
	// Tracing makes spans of calls; nil: off. The caller closes it behind the server.
	Tracing *tracing.Tracing
	// ExtensiveMetrics adds a latency histogram of every RPC.
	ExtensiveMetrics bool

	// headTimeout is handshakeTimeout and idleTimeout is defaultIdleTimeout; tests
	// shorten them.
	headTimeout, idleTimeout time.Duration
}

const (
	defaultMaxRequestBytes   = 1536 * 1024
	defaultMaxTxnOps         = 128
	defaultAuthTokenTTL      = 300 * time.Second
	defaultKeepAliveMinTime  = 5 * time.Second
	defaultKeepAliveInterval = 2 * time.Hour
	defaultKeepAliveTimeout  = 20 * time.Second
	defaultRequestTimeout    = 7 * time.Second
	defaultSlowRequest       = 300 * time.Millisecond
	defaultStopTimeout       = 5 * time.Second

	// handshakeTimeout bounds the TLS handshake together with the bytes that distinguish
	// HTTP/2 from HTTP/1, gRPC's first settings, and the headers of an HTTP/1 request.
	handshakeTimeout = 10 * time.Second
	// defaultIdleTimeout bounds the wait for a request. The HTTP server closes the
	// connection then; a connection of HTTP/2 without a first request is gRPC's, which
	// keeps idle connections open as etcd does.
	defaultIdleTimeout = 2 * time.Minute
	// maxHeaderBytes bounds the headers of a request, and the metadata of a call.
	maxHeaderBytes = 64 * 1024

	// grpcOverhead is what a message may exceed MaxRequestBytes by before gRPC
	// itself refuses it, so that etcd's own error is the usual one.
	grpcOverhead = 512 * 1024
)

func (c Config) withDefaults() (Config, error) {
	if len(c.ListenClientURLs) == 0 {
		return c, errors.New("server: no client URL to listen on")
	}
	if c.MaxRequestBytes < 0 || c.MaxRequestBytes > math.MaxInt32-grpcOverhead {
		return c, fmt.Errorf("server: max request bytes %d is not between 1 and %d", c.MaxRequestBytes, math.MaxInt32-grpcOverhead)
	}
	if c.MaxTxnOps < 0 {
		return c, fmt.Errorf("server: max txn ops %d is negative", c.MaxTxnOps)
	}
	for _, d := range []time.Duration{
		c.KeepAliveMinTime, c.KeepAliveInterval, c.KeepAliveTimeout,
		c.RequestTimeout, c.SlowRequest, c.StopTimeout, c.AuthTokenTTL,
	} {
		if d < 0 {
			return c, fmt.Errorf("server: duration %s is negative", d)
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if c.Registry == nil {
		c.Registry = prometheus.NewRegistry()
	}
	c.Name = cmp.Or(c.Name, "default")
	c.SnapshotDir = cmp.Or(c.SnapshotDir, os.TempDir())
	c.MaxRequestBytes = cmp.Or(c.MaxRequestBytes, defaultMaxRequestBytes)
	c.MaxTxnOps = cmp.Or(c.MaxTxnOps, defaultMaxTxnOps)
	c.AuthToken = cmp.Or(c.AuthToken, auth.DefaultToken)
	c.AuthTokenTTL = cmp.Or(c.AuthTokenTTL, defaultAuthTokenTTL)
	c.BcryptCost = cmp.Or(c.BcryptCost, auth.DefaultBcryptCost)
	c.MaxConcurrentStreams = cmp.Or(c.MaxConcurrentStreams, math.MaxUint32)
	c.KeepAliveMinTime = cmp.Or(c.KeepAliveMinTime, defaultKeepAliveMinTime)
	c.KeepAliveInterval = cmp.Or(c.KeepAliveInterval, defaultKeepAliveInterval)
	c.KeepAliveTimeout = cmp.Or(c.KeepAliveTimeout, defaultKeepAliveTimeout)
	c.RequestTimeout = cmp.Or(c.RequestTimeout, defaultRequestTimeout)
	c.SlowRequest = cmp.Or(c.SlowRequest, defaultSlowRequest)
	c.StopTimeout = cmp.Or(c.StopTimeout, defaultStopTimeout)
	c.headTimeout = cmp.Or(c.headTimeout, handshakeTimeout)
	c.idleTimeout = cmp.Or(c.idleTimeout, defaultIdleTimeout)
	return c, nil
}
