package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
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

	streams *streams
	health  *health.Server
	monitor *monitor
	grpc    *grpc.Server
	gateway *gateway // nil where it is switched off
	http    *http.Server
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
	s := &Server{cfg: cfg, node: n, log: cfg.Logger, conns: &connections{}, streams: &streams{}, health: health.NewServer()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err := s.listen(); err != nil {
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
	if s.grpc, err = newGRPC(cfg, n, open, s.streams, s.health, advertised); err != nil {
		return nil, err
	}
	var gatewayHandler http.Handler
	if cfg.EnableGRPCGateway {
		// The context only bounds the registration; close ends the connection.
		if s.gateway, err = newGateway(context.Background(), cfg.MaxRequestBytes+grpcOverhead); err != nil {
			return nil, err
		}
		gatewayHandler = s.gateway.handler
	}
	s.http = newHTTPServer(clientHandler(cfg, endpoints, gatewayHandler))
	s.metricsHTTP = newHTTPServer(metricsHandler(cfg, endpoints))
	s.monitor = &monitor{id: n, health: s.health, streams: s.streams, log: s.log}
	return s, nil
}

// listen opens all listeners.
func (s *Server) listen() error {
	var files *tlsfiles.Files
	if !s.cfg.TLS.Empty() {
		var err error
		if files, err = tlsfiles.Open(s.cfg.TLS, s.log); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
	bind := func(urls []string) (bindings []*binding, err error) {
		for _, raw := range urls {
			e, err := parseEndpoint(raw)
			if err != nil {
				return bindings, err
			}
			if e.secure && files == nil {
				return bindings, fmt.Errorf("server: listen on %s: a certificate and a key are needed", e.url)
			}
			if !e.secure && files != nil {
				s.log.Warn("certificates do not apply to this URL", "url", e.url)
			}
			l, err := e.listen()
			if err != nil {
				return bindings, err
			}
			b := &binding{endpoint: e, listener: newListener(l, s.conns)}
			if e.secure {
				b.listener = &tlsListener{Listener: b.listener, config: files.Listener(), log: s.log}
			}
			bindings = append(bindings, b)
		}
		return bindings, nil
	}
	var err error
	if s.clients, err = bind(s.cfg.ListenClientURLs); err != nil {
		return err
	}
	s.metrics, err = bind(s.cfg.ListenMetricsURLs)
	return err
}

// ClientURLs are the URLs listened on for clients, with their real ports.
func (s *Server) ClientURLs() []string { return reachedURLs(s.clients) }

// MetricsURLs are the URLs listened on for metrics only, with their real ports.
func (s *Server) MetricsURLs() []string { return reachedURLs(s.metrics) }

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
	for _, b := range s.clients {
		r := route(b.listener)
		serve(b.url, r.mux.Serve)
		serve(b.url, func() error { return s.grpc.Serve(r.grpc) })
		for _, l := range r.http {
			serve(b.url, func() error { return s.http.Serve(l) })
		}
		s.log.Info("serving clients", "url", b.reached(b.listener))
	}
	for _, b := range s.metrics {
		serve(b.url, func() error { return s.metricsHTTP.Serve(b.listener) })
		s.log.Info("serving metrics", "url", b.reached(b.listener))
	}
	if s.gateway != nil {
		serve("gateway", func() error { return s.grpc.Serve(s.gateway.listener) })
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

// stop ends everything Run started, within the stop timeout.
func (s *Server) stop() {
	s.log.Info("stopping", "timeout", s.cfg.StopTimeout)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.StopTimeout)
	defer cancel()
	s.health.Shutdown()
	s.closeListeners()
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
		// GracefulStop waits for calls; Stop makes it return.
		cut := context.AfterFunc(ctx, func() {
			s.log.Warn("calls were cut")
			s.grpc.Stop()
		})
		s.grpc.GracefulStop()
		cut()
	})
	group.Wait()
	if s.gateway != nil {
		s.gateway.close(s.log)
	}
	s.conns.closeAll()
}

// Close releases the listeners of a server that was not run.
func (s *Server) Close() error {
	err := s.closeListeners()
	if s.gateway != nil {
		s.gateway.close(s.log)
	}
	if s.grpc != nil {
		s.grpc.Stop()
	}
	s.conns.closeAll()
	return err
}

func (s *Server) closeListeners() error {
	var errs []error
	for _, b := range append(s.clients[:len(s.clients):len(s.clients)], s.metrics...) {
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
