package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/sqlbrain/sqlbrain/cmd/sqlbrain/internal/config"
	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/server/steptrace"
	"github.com/sqlbrain/sqlbrain/server/tracing"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
)

func (p *program) newServeCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve etcd clients (the default)",
		Long: `Serve etcd clients until SIGINT or SIGTERM. Requests under way are answered first; a second signal,
a second later or more, ends the process at once.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return p.serve(cmd.Context(), func(*slog.Logger) error { return nil })
		},
	}
	p.needs(cmd)
	return cmd
}

// serve puts the server together, runs it until ctx ends, and takes it apart in
// the opposite order. It calls prepare before it touches the schema.
func (p *program) serve(ctx context.Context, prepare func(*slog.Logger) error) (err error) {
	container := containerMemory()
	memory := p.settings.FitMemory(container)
	defer tuneCollector(memory)()
	c := p.settings.Config
	u := p.settings.URL()
	if err := preflight(p.settings, clustered(u.Dialect)); err != nil {
		return err
	}
	logger, closeLog, err := p.newLogger()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	logger.Info("sqlbrain starts", "version", productVersion(), "etcd_api", server.EtcdVersion,
		"datastore", u, "settings", p.settings.Describe())
	logMemory(logger, &c, memory, container)
	for _, name := range p.settings.IgnoredEnvironment() {
		logger.Warn("ignored an environment variable that is not a setting", "name", name)
	}
	warnPlainDatabase(logger, u)
	defer func() {
		if ctx.Err() != nil && errors.Is(err, context.Canceled) {
			logger.Info("interrupted while starting")
			err = nil
		}
	}()

	if err := p.observe(ctx, &c, logger); err != nil {
		return err
	}
	defer c.Server.Audit.Close()
	defer closeTracing(ctx, c.Server.Tracing, logger, c.Server.StopTimeout)
	if err := prepare(logger); err != nil {
		return err
	}
	if err := p.prepareSchema(ctx, logger); err != nil {
		return err
	}
	if c.ProtocolTrace != "" {
		if c.Replica.Trace, err = steptrace.OpenFile(c.ProtocolTrace, c.Node.Name, fence.Clock, logger); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, c.Replica.Trace.Close()) }()
	}
	store, err := engines.Open(ctx, u, c.Store)
	if err != nil {
		return p.atDatastore(err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	stopBackup, err := backUp(&c, store)
	if err != nil {
		return err
	}
	defer stopBackup()
	n, err := openReplica(ctx, &c, u.Dialect, store)
	if err != nil {
		return p.atDatastore(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Server.StopTimeout)
		defer cancel()
		err = errors.Join(err, n.close(ctx))
		logger.Info("sqlbrain stopped", "revision", n.node.Revision())
	}()
	n.connect(&c.Server)
	c.Server.Examine = func(ctx context.Context) (any, error) { return p.examine(ctx) }
	files := mostFiles()
	c.Server.MaxClientConnections = clientConnections(files, p.databaseConns())
	c.Server.MaxMetricsConnections, c.Server.MaxPeerConnections = otherConnections(files), otherConnections(files)
	s, err := server.New(c.Server, n.node)
	if err != nil {
		return err
	}
	if err := n.start(ctx, s.ClientURLs(), c.Server.AdvertiseClientURLs); err != nil {
		return errors.Join(err, s.Close())
	}
	b := n.node
	logger.Info("ready", "listen", s.ClientURLs(), "datastore", u,
		"cluster_id", fmt.Sprintf("%x", b.ClusterID()), "member_id", fmt.Sprintf("%x", b.MemberID()), "revision",
		b.Revision())
	p.notifyServiceManager(logger, "READY=1")
	return p.run(ctx, logger, n, s)
}

// observe gives the components their logger, metrics, traces and audit log.
func (p *program) observe(ctx context.Context, c *config.Config, logger *slog.Logger) (err error) {
	registry := prometheus.NewRegistry()
	c.Audit.Logger, c.Audit.Registerer = logger, registry
	c.Audit.Start = []slog.Attr{
		slog.String("version", productVersion()), slog.String("name", c.Node.Name),
		slog.Any("settings", p.settings.Describe()),
	}
	if c.Server.Audit, err = audit.Open(c.Audit); err != nil {
		return err
	}
	if c.EnableTracing {
		c.Tracing.Version, c.Tracing.Logger = productVersion(), logger
		if c.Server.Tracing, err = tracing.Open(ctx, c.Tracing); err != nil {
			c.Server.Audit.Close()
			return err
		}
	}
	tracer := c.Server.Tracing.Tracer()
	c.Store.Logger, c.Store.Registerer, c.Store.Tracer = logger, registry, tracer
	c.Replica.Logger, c.Replica.Registerer, c.Replica.Tracer = logger, registry, tracer
	c.Node.Logger, c.Node.Registerer, c.Node.PeerStats, c.Node.Version = logger, registry, c.Server.Tracing.Client(),
		productVersion()
	c.Server.Logger, c.Server.Registry, c.Server.Version = logger, registry, productVersion()
	return nil
}

// lastSpans bounds how long a stopping process waits for its collector.
const lastSpans = 2 * time.Second

// closeTracing sends the remaining spans. If the collector is away, it only logs that.
func closeTracing(ctx context.Context, t *tracing.Tracing, logger *slog.Logger, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(timeout, lastSpans))
	defer cancel()
	if err := t.Close(ctx); err != nil {
		logger.Warn("closing the traces", "error", err)
	}
}

// warnPlainDatabase warns if keys and values leave this host in plain text.
func warnPlainDatabase(logger *slog.Logger, u *sqlstore.URL) {
	if u.Dialect == sqlstore.DialectMySQL && !u.Encrypted() && !isLocal(u) {
		logger.Warn("connecting to a database on another host without TLS: others on the network can read and change keys "+
			"and values; "+
			"add tls=true to the URL of --datastore, and tls-ca=FILE if a private authority signed its certificate", "datastore",
			u)
	}
}

// run serves until ctx ends. It then notifies the service manager, hands the leadership over to
// another node, and only then stops serving.
func (p *program) run(ctx context.Context, logger *slog.Logger, n *servedNode, s *server.Server) error {
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	notified := make(chan struct{})
	go func() {
		defer close(notified)
		select {
		case <-ctx.Done():
			p.notifyServiceManager(logger, "STOPPING=1")
			n.resign()
			stop()
		case <-running.Done():
		}
	}()
	err := s.Run(running)
	stop()
	<-notified
	return err
}

// notifyServiceManager notifies the service manager. It logs a failure, and continues.
func (p *program) notifyServiceManager(logger *slog.Logger, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		logger.Warn("failed to notify the service manager", "state", state, "error", err)
	}
}
