package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/cluster"
	"github.com/sqlbrain/sqlbrain/server/membership"
	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
)

// replica is what the server serves: a backend that has its database to itself, or
// one node of a cluster.
type replica struct {
	backend *backend.Backend
	cluster *cluster.Node // nil with SQLite
}

// openReplica opens the node. With SQLite it leads already; in a cluster it campaigns
// and follows from start on.
func openReplica(ctx context.Context, c *config.Config, dialect string, store sqlstore.Store, logger *slog.Logger, registry *prometheus.Registry, traces *tracing.Tracing) (*replica, error) {
	cfg := backendConfig(c, logger, registry)
	cfg.Tracer = traces.Tracer()
	if !clustered(dialect) {
		cfg.Exclusive = true
		if len(c.InitialAdvertisePeerURLs) > 0 || c.PeerCertFile != "" || c.PeerInsecure {
			logger.Warn("SQLite has one server: the settings for peers have no effect")
		}
		b, err := backend.Open(ctx, store, cfg)
		return &replica{backend: b}, err
	}
	if err := backend.RefuseRestoring(ctx, store); err != nil {
		return nil, err
	}
	if c.PeerInsecure {
		logger.Warn("--peer-insecure is set: processes without a member's certificate are accepted as members, and can act as any user; " +
			"remove it once no member runs an older version")
	}
	n, err := cluster.Join(ctx, cluster.Config{
		Store: store, Name: c.Name, Version: productVersion(), ForceJoin: c.ForceJoin,
		PeerURLs: firstOf(c.InitialAdvertisePeerURLs, c.ListenPeerURLs), ClientURLs: firstOf(c.AdvertiseClientURLs, c.ListenClientURLs),
		PeerTLS: c.PeerTLS(), PeerInsecure: c.PeerInsecure, PeerStats: traces.Client(), Backend: cfg,
		LeaseDuration: c.LeaderElectLeaseDuration, RenewDeadline: c.LeaderElectRenewDeadline, RetryPeriod: c.LeaderElectRetryPeriod,
		Logger: logger, Registerer: registry,
	})
	if errors.Is(err, membership.ErrRunning) {
		err = fmt.Errorf("%w: stop it, give this one another --name, or take its place with --force-join", err)
	}
	if err != nil {
		return nil, err
	}
	return &replica{backend: n.Backend(), cluster: n}, nil
}

// clustered reports whether servers can share a database of this dialect.
func clustered(dialect string) bool { return dialect != sqlstore.DialectSQLite }

func firstOf(lists ...[]string) []string {
	for _, l := range lists {
		if len(l) > 0 {
			return l
		}
	}
	return nil
}

// connect tells the server of the cluster.
func (n *replica) connect(cfg *server.Config, c *config.Config) {
	if n.cluster == nil {
		return
	}
	cfg.Members = n.cluster.Members()
	cfg.PeerURLs, cfg.PeerCredentials = c.ListenPeerURLs, n.cluster.PeerCredentials()
	cfg.PeerNode = cluster.Peer{Node: n.cluster}
	cfg.Router = cluster.Connection{Node: n.cluster}
	cfg.Mover = n.cluster
}

// start lets the node take part in its cluster, once clientURLs are listened on.
func (n *replica) start(ctx context.Context, clientURLs, advertised []string) error {
	if n.cluster == nil {
		return nil
	}
	if len(advertised) == 0 { // ports that the system chose are known now
		if err := n.cluster.Members().Advertise(ctx, clientURLs); err != nil {
			return err
		}
	}
	n.cluster.Start()
	return nil
}

// resign hands the leadership over, while the server still serves.
func (n *replica) resign() {
	if n.cluster != nil {
		n.cluster.Resign()
	}
}

func (n *replica) close(ctx context.Context) error {
	if n.cluster != nil {
		return n.cluster.Close(ctx)
	}
	return n.backend.Close(ctx)
}
