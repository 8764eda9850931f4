package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/sqlbrain/sqlbrain/server/backend"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
)

// Server serves a backend to clients.
type Server struct {
	cfg     Config
	node    node
	log     *slog.Logger
	conns   *connections
	clients []*binding
	metrics []*binding
	peers   []*binding
	// peerConns are apart from conns: those that only shook hands so far keep
	// peerGRPC from stopping.
	peerConns *connections

	services *services
	streams  *streams
	health   *health.Server
	monitor  *monitor
	grpc     *grpc.Server
	// peerGRPC serves the other members; nil without peer listeners.
	peerGRPC *grpc.Server
	gateway  *inProcess   // the gateway's way in
	inside   *inProcess   // that of calls the server makes itself
	recipes  *concurrency // of the Lock and Election services
	http     *http.Server
	// metricsHTTP serves the metrics listeners, whose TLS net/http does not see either.
	metricsHTTP *http.Server
}

// binding is one URL and the listener on it.
type binding struct {
	endpoint
	listener net.Listener // TLS, if any, is taken off what it accepts
}

// New checks cfg, reads the TLS files and opens the listeners, so that a port
// that is taken is an error here. The caller goes on with Run, or with Close.
func New(cfg Config, b *backend.Backend) (*Server, error) {
	return newServer(cfg, b, hubStreams(b))
}

func newServer(cfg Config, n node, open openWatch) (_ *Server, err error) {
	cfg, err = cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, node: n, log: cfg.Logger, conns: &connections{}, peerConns: &connections{}, streams: &streams{}, health: health.NewServer()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.listen(); err != nil {
		return nil, err
	}
	if err := s.listenPeers(); err != nil {
		return nil, err
	}
	advertised := cfg.AdvertiseClientURLs
	if len(advertised) == 0 {
		advertised = s.ClientURLs()
	}
	endpoints := newHealthEndpoints(n, cfg)
	collectors := append(versionCollectors(n, cfg.Version), newStatusCollector(n))
	if err := register(cfg.Registry, append(collectors, endpoints.collectors()...)...); err != nil {
		return nil, err
	}
	if err := registerOnce(cfg.Registry, processCollectors()...); err != nil {
		return nil, err
	}
	s.gateway, s.inside = newInProcess(false, cfg.Tracing.Client()), newInProcess(true, cfg.Tracing.Client())
	if s.recipes, err = newConcurrency(s.inside); err != nil {
		return nil, err
	}
	if s.services, err = newServices(cfg, n, open, s.streams, s.recipes, advertised); err != nil {
		return nil, err
	}
	if s.grpc, err = newGRPC(cfg, n, s.services, s.streams, s.health); err != nil {
		return nil, err
	}
	if len(s.peers) > 0 {
		s.peerGRPC = newPeerGRPC(cfg, s.services, s.streams)
	}
	var gateway http.Handler
	if cfg.EnableGRPCGateway {
		if gateway, err = newGateway(s.gateway, cfg.MaxRequestBytes+grpcOverhead); err != nil {
			return nil, err
		}
		if cfg.TLS.ClientCertAuth {
			gateway = refuseNames(func() bool { return n.AuthRows().Enabled }, gateway)
		}
	}
	var page http.Handler
	if cfg.Console {
		if page, err = newConsole(cfg, n, s.services, s.gateway); err != nil {
			return nil, err
		}
	}
	plain, err := clientHandler(cfg, endpoints, gateway)
	if err != nil {
		return nil, err
	}
	s.http = newHTTPServer(&cfg, allowHosts(cfg.HostWhitelist, withConsole(page, plain)))
	s.metricsHTTP = newHTTPServer(&cfg, metricsHandler(cfg, endpoints))
	s.monitor = &monitor{id: n, health: s.health, streams: s.streams, log: s.log}
	return s, nil
}

// listen opens the listeners for clients and metrics.
func (s *Server) listen() error {
	files, err := openFiles(s.cfg.TLS, s.log)
	if err != nil {
		return err
	}
	secure := func(l net.Listener) net.Listener {
		return &tlsListener{Listener: l, config: files.Listener(), log: s.log}
	}
	if s.clients, err = s.bind(s.cfg.ListenClientURLs, files, s.conns, secure); err != nil {
		return err
	}
	s.metrics, err = s.bind(s.cfg.ListenMetricsURLs, files, s.conns, secure)
	return err
}

// listenPeers opens the listeners for the other members.
func (s *Server) listenPeers() (err error) {
	if s.cfg.PeerNode == nil || len(s.cfg.PeerURLs) == 0 {
		return nil
	}
	if s.cfg.PeerCredentials == nil {
		return errors.New("server: listening for other members needs credentials")
	}
	s.peers, err = s.bind(s.cfg.PeerURLs, nil, s.peerConns, nil)
	return err
}

// openFiles returns nil for no files.
func openFiles(paths TLSConfig, log *slog.Logger) (*tlsfiles.Files, error) {
	if paths.Empty() {
		return nil, nil
	}
	files, err := tlsfiles.Open(paths, log)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return files, nil
}

// bind opens a listener on each URL, with secure around those that have TLS; what
// it has opened it returns with an error too. If secure is nil, the caller decides on TLS.
func (s *Server) bind(urls []string, files *tlsfiles.Files, cs *connections, secure func(net.Listener) net.Listener) (bindings []*binding, err error) {
	for _, raw := range urls {
		e, err := parseEndpoint(raw)
		if err != nil {
			return bindings, err
		}
		if secure != nil && e.secure && files == nil {
			return bindings, fmt.Errorf("server: listen on %s: a certificate and a key are needed", e.url)
		}
		if secure != nil && !e.secure && files != nil {
			s.log.Warn("certificates do not apply to this URL", "url", e.url)
		}
		l, err := e.listen()
		if err != nil {
			return bindings, err
		}
		b := &binding{endpoint: e, listener: newListener(l, cs)}
		if secure != nil && e.secure {
			b.listener = secure(b.listener)
		}
		bindings = append(bindings, b)
	}
	return bindings, nil
}

// ClientURLs are the URLs listened on for clients, with their real ports.
func (s *Server) ClientURLs() []string { return reachedURLs(s.clients) }

// MetricsURLs are the URLs listened on for metrics only, with their real ports.
func (s *Server) MetricsURLs() []string { return reachedURLs(s.metrics) }

// PeerURLs are the URLs listened on for the other members, with their real ports.
// Members may connect from now on, and are answered once Run is called.
func (s *Server) PeerURLs() []string { return reachedURLs(s.peers) }

func reachedURLs(bindings []*binding) []string {
	urls := make([]string, len(bindings))
	for i, b := range bindings {
		urls[i] = b.reached(b.listener)
	}
	return urls
}

// Run serves until ctx ends, then stops as the package comment says and returns
// nil; or until a listener fails, which is its error. It is called once.
func (s *Server) Run(ctx context.Context) error {
	var group sync.WaitGroup
	failed := make(chan error, 1)
	serve := func(what string, f func() error) {
		group.Go(func() {
			if err := f(); err != nil {
				select {
				case failed <- fmt.Errorf("server: %s: %w", what, err):
				default: // the first error is why it stops
				}
			}
		})
	}
	for _, b := range s.peers {
		serve(b.url, func() error { return s.peerGRPC.Serve(b.listener) })
		s.log.Info("serving peers", "url", b.reached(b.listener))
	}
	for _, b := range s.clients {
		r := newRouter(b.listener, &s.cfg)
		serve(b.url, r.serve)
		serve(b.url, func() error { return s.grpc.Serve(r.grpc) })
		serve(b.url, func() error { return s.http.Serve(r.http) })
		s.log.Info("serving clients", "url", b.reached(b.listener))
	}
	s.warnExposed()
	for _, b := range s.metrics {
		serve(b.url, func() error { return s.metricsHTTP.Serve(b.listener) })
		s.log.Info("serving metrics", "url", b.reached(b.listener))
	}
	for _, p := range []*inProcess{s.gateway, s.inside} {
		serve("in process", func() error { return s.grpc.Serve(p.served()) })
	}
	monitorCtx, stopMonitor := context.WithCancel(context.Background())
	ticker := time.NewTicker(monitorInterval)
	defer ticker.Stop()
	group.Go(func() { s.monitor.run(monitorCtx, ticker.C) })

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		s.log.Error("stopping", "error", err)
	}
	stopMonitor()
	s.stop()
	group.Wait()
	s.streams.waitReceivers()
	return err
}

// warnExposed logs which client URLs other hosts reach without TLS, or without
// authentication of clients.
func (s *Server) warnExposed() {
	var plain, open []string
	for _, b := range s.clients {
		if b.local() {
			continue
		}
		if !b.secure {
			plain = append(plain, b.reached(b.listener))
		}
		if !b.secure || !s.cfg.TLS.ClientCertAuth {
			open = append(open, b.reached(b.listener))
		}
	}
	if len(plain) > 0 {
		s.log.Warn("serving clients of other hosts in plain text: whoever is on the network can read and change their calls; "+
			"use https in --listen-client-urls, with --cert-file and --key-file", "urls", plain)
	}
	if len(open) > 0 && !s.node.AuthRows().Enabled {
		s.log.Warn("serving clients of other hosts with authentication off: every client may read and change everything; "+
			"create the user root and call 'etcdctl auth enable', or set --client-cert-auth", "urls", open)
	}
}

// stop ends everything Run started, within the stop timeout.
func (s *Server) stop() {
	s.log.Info("stopping", "timeout", s.cfg.StopTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StopTimeout)
	defer cancel()
	s.health.Shutdown()
	s.closeListeners()
	s.recipes.stop()
	s.streams.stop()

	var group sync.WaitGroup
	for _, h := range []*http.Server{s.http, s.metricsHTTP} {
		group.Go(func() {
			if err := h.Shutdown(ctx); err != nil {
				s.log.Warn("HTTP requests were cut", "error", err)
				// Its listeners are closed already, which is all it could complain of.
				_ = h.Close()
			}
		})
	}
	group.Go(func() {
		// Before the graceful stop, which refuses the calls they make.
		s.recipes.close(ctx)
		s.stopGRPC(ctx, s.grpc, s.conns)
	})
	if s.peerGRPC != nil {
		group.Go(func() { s.stopGRPC(ctx, s.peerGRPC, s.peerConns) })
	}
	group.Wait()
	s.gateway.close(s.log)
	s.inside.close(s.log)
	s.conns.closeAll()
	s.peerConns.closeAll()
}

// stopGRPC waits for calls until ctx ends; then they are cut. Connections that have
// not said what they want yet keep a gRPC server from stopping as well.
func (s *Server) stopGRPC(ctx context.Context, g *grpc.Server, cs *connections) {
	cut := context.AfterFunc(ctx, func() {
		s.log.Warn("calls were cut")
		cs.closeAll()
		g.Stop()
	})
	g.GracefulStop()
	cut()
}

// Close releases the listeners of a server that was not run.
func (s *Server) Close() error {
	err := s.closeListeners()
	if s.recipes != nil {
		s.recipes.stop()
		s.recipes.close(context.Background())
	}
	for _, p := range []*inProcess{s.gateway, s.inside} {
		if p != nil {
			p.close(s.log)
		}
	}
	if s.grpc != nil {
		s.grpc.Stop()
	}
	if s.peerGRPC != nil {
		s.peerGRPC.Stop()
	}
	s.conns.closeAll()
	s.peerConns.closeAll()
	return err
}

func (s *Server) closeListeners() error {
	var errs []error
	for _, b := range slices.Concat(s.clients, s.metrics, s.peers) {
		errs = append(errs, b.listener.Close())
	}
	return errors.Join(errs...)
}

func register(r prometheus.Registerer, cs ...prometheus.Collector) error {
	for _, c := range cs {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("server: metrics: %w", err)
		}
	}
	return nil
}

// registerOnce leaves out what the registry has already: several parts of a
// program may want the metrics of the process.
func registerOnce(r prometheus.Registerer, cs ...prometheus.Collector) error {
	for _, c := range cs {
		var already prometheus.AlreadyRegisteredError
		if err := r.Register(c); err != nil && !errors.As(err, &already) {
			return fmt.Errorf("server: metrics: %w", err)
		}
	}
	return nil
}
