package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/watch"
)

func (p *program) newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve etcd clients (the default)",
		Long: `Serve etcd clients until SIGINT or SIGTERM. Requests under way are answered first; a second signal ends the
process at once.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := p.settings.Load(p.environ); err != nil {
				return err
			}
			return p.serve(cmd.Context())
		},
	}
	p.settings.Bind(cmd.Flags())
	return cmd
}

// serve puts the server together, runs it until ctx ends, and takes it apart in
// the opposite order.
func (p *program) serve(ctx context.Context) (err error) {
	u := p.settings.URL()
	defer tuneCollector(goMemory(p.settings.MemoryLimitBytes, sqlstore.PageCacheBytes(u, p.settings.DatastoreMaxOpenConns)))()
	if err := preflight(&p.settings.Config, clustered(u.Dialect)); err != nil {
		return err
	}
	logger, closeLog, err := p.newLogger()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	logger.Info("sqlbrain starts", "version", productVersion(), "etcd_api", server.EtcdVersion,
		"datastore", p.settings.URL(), "settings", p.settings.Describe())
	for _, name := range p.settings.UnknownEnvironment(p.environ) {
		logger.Warn("environment variable is no setting", "name", name)
	}
	warnPlainDatabase(logger, u)
	defer func() {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			logger.Info("interrupted while starting")
			err = nil
		}
	}()

	registry := prometheus.NewRegistry()
	audited, err := audit.Open(audit.Config{To: p.settings.AuditLog, Logger: logger, Registerer: registry, Start: []slog.Attr{
		slog.String("version", productVersion()), slog.String("name", p.settings.Name), slog.Any("settings", p.settings.Describe()),
	}})
	if err != nil {
		return err
	}
	defer audited.Close()
	traces, err := openTracing(ctx, &p.settings.Config, logger)
	if err != nil {
		return err
	}
	defer closeTracing(ctx, traces, logger, p.settings.StopTimeout)

	if err := p.prepareSchema(ctx, logger); err != nil {
		return err
	}
	store, err := sqlstore.Open(ctx, u, sqlstore.Options{
		MaxOpenConns: p.settings.DatastoreMaxOpenConns, Logger: logger, Registerer: registry, Tracer: traces.Tracer(),
	})
	if err != nil {
		return fmt.Errorf("datastore %s: %w", u, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	n, err := openReplica(ctx, &p.settings.Config, u.Dialect, store, logger, registry, traces)
	if err != nil {
		return fmt.Errorf("datastore %s: %w", u, err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.settings.StopTimeout)
		defer cancel()
		err = errors.Join(err, n.close(ctx))
		logger.Info("sqlbrain stopped", "revision", n.backend.Revision())
	}()

	cfg := serverConfig(&p.settings.Config, logger, registry)
	cfg.Tracing, cfg.Audit = traces, audited
	n.connect(&cfg, &p.settings.Config)
	s, err := server.New(cfg, n.backend)
	if err != nil {
		return err
	}
	if err := n.start(ctx, s.ClientURLs(), p.settings.AdvertiseClientURLs); err != nil {
		return errors.Join(err, s.Close())
	}
	b := n.backend
	logger.Info("ready", "listen", s.ClientURLs(), "datastore", u,
		"cluster_id", fmt.Sprintf("%x", b.ClusterID()), "member_id", fmt.Sprintf("%x", b.MemberID()), "revision", b.Revision())
	p.tellServiceManager(logger, "READY=1")
	return p.run(ctx, logger, n, s)
}

// warnPlainDatabase logs that keys and values leave this host in plain text.
func warnPlainDatabase(logger *slog.Logger, u *sqlstore.URL) {
	if u.Dialect == sqlstore.DialectMySQL && !u.Encrypted() && !isLocal(u) {
		logger.Warn("connecting to a database on another host without TLS: whoever is on the network can read and change keys and values; "+
			"add tls=true to the URL of --datastore, and tls-ca=FILE if a private authority signed its certificate", "datastore", u)
	}
}

// run serves until ctx ends. The service manager is told before anything stops, and
// another node leads before this one stops to serve.
func (p *program) run(ctx context.Context, logger *slog.Logger, n *replica, s *server.Server) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	told := make(chan struct{})
	go func() {
		defer close(told)
		select {
		case <-ctx.Done():
			p.tellServiceManager(logger, "STOPPING=1")
			n.resign()
			stop()
		case <-running.Done():
		}
	}()
	err := s.Run(running)
	stop()
	<-told
	return err
}

// tellServiceManager is not worth failing for.
func (p *program) tellServiceManager(logger *slog.Logger, state string) {
	if err := notify(state); err != nil {
		logger.Warn("the service manager was not told", "state", state, "error", err)
	}
}

func backendConfig(c *config.Config, logger *slog.Logger, registry *prometheus.Registry) backend.Config {
	cfg := backend.Config{
		Logger:         logger,
		Name:           c.Name,
		ConfirmReads:   c.ReadConsistency == config.ReadDatabase,
		QuotaBytes:     c.QuotaBackendBytes,
		RequestTimeout: c.RequestTimeout,
		CommitTimeout:  c.CommitTimeout,
		QueueLength:    c.QueueLength,
		BatchRequests:  c.BatchMaxRequests,
		BatchRows:      c.BatchMaxRows,
		BatchBytes:     c.BatchMaxBytes,
		IndexCache:     c.IndexCacheEntries,
		RecordCache:    c.ObjectCacheBytes,
		TTLPolicies:    c.TTLPolicies,
		TokenTTL:       time.Duration(c.AuthTokenTTL) * time.Second,
		Registerer:     registry,
		Watch: watch.Config{
			RingEvents:       c.WatchRingEvents,
			RingBytes:        c.WatchRingBytes,
			QueueEvents:      c.WatchQueueEvents,
			QueueBytes:       c.WatchQueueBytes,
			ProgressInterval: c.WatchProgressNotifyInterval,
		},
	}
	if c.ObjectCacheBytes == 0 {
		cfg.RecordCache = -1 // off; 0 would be the default
	}
	switch {
	case c.PeriodicRetention() > 0:
		cfg.AutoCompactionMode, cfg.AutoCompactionRetention = config.CompactPeriodic, c.PeriodicRetention()
	case c.RetainedRevisions() > 0:
		cfg.AutoCompactionMode, cfg.AutoCompactionRevisions = config.CompactRevision, c.RetainedRevisions()
	}
	return cfg
}

func serverConfig(c *config.Config, logger *slog.Logger, registry *prometheus.Registry) server.Config {
	cfg := server.Config{
		Logger:               logger,
		Name:                 c.Name,
		Version:              productVersion(),
		ListenClientURLs:     c.ListenClientURLs,
		AdvertiseClientURLs:  c.AdvertiseClientURLs,
		ListenMetricsURLs:    c.ListenMetricsURLs,
		TLS:                  c.ClientTLS(),
		AuthToken:            c.AuthToken,
		AuthTokenTTL:         time.Duration(c.AuthTokenTTL) * time.Second,
		BcryptCost:           c.BcryptCost,
		MaxRequestBytes:      c.MaxRequestBytes,
		MaxTxnOps:            c.MaxTxnOps,
		MaxConcurrentStreams: c.MaxConcurrentStreams,
		KeepAliveMinTime:     c.GRPCKeepAliveMinTime,
		KeepAliveInterval:    c.GRPCKeepAliveInterval,
		KeepAliveTimeout:     c.GRPCKeepAliveTimeout,
		EnableGRPCGateway:    c.EnableGRPCGateway,
		SnapshotDir:          cmp.Or(c.SnapshotDir, c.DataDir),
		CORS:                 c.CORS,
		HostWhitelist:        c.HostWhitelist,
		EnablePprof:          c.EnablePprof,
		Console:              c.Console,
		ConsoleWrite:         c.ConsoleWrite,
		RequestTimeout:       c.RequestTimeout,
		SlowRequest:          c.WarnUnaryDuration,
		StopTimeout:          c.StopTimeout,
		Registry:             registry,
		ExtensiveMetrics:     c.Metrics == config.MetricsExtensive,
	}
	if c.GRPCKeepAliveInterval == 0 || c.GRPCKeepAliveTimeout == 0 {
		// No pings, as in etcd; 0 would be the default.
		cfg.KeepAliveInterval, cfg.KeepAliveTimeout = time.Duration(math.MaxInt64), 0
	}
	return cfg
}
