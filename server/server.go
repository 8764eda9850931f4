package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/sqlbrain/sqlbrain/server/console"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/server/transport"
	"github.com/sqlbrain/sqlbrain/sqlstore/metric"
)

// Server serves a replica to clients.
type Server struct {
	cfg     Config
	node    node
	log     *slog.Logger
	conns   *transport.Connections
	clients []*transport.Listener
	metrics []*transport.Listener
	peers   []*transport.Listener
	// peerConns are apart from conns: those that only shook hands so far keep
	// peerGRPC from stopping.
	peerConns *transport.Connections

	requests *transport.Requests
	answers  *transport.Answers
	services *etcd.Services
	forward  *forward.Forwarder // nil: this node always leads
	slow     prometheus.Counter // calls that took long
	streams  *transport.Streams
	health   *health.Server
	checks   *status.Health
	monitor  *status.Monitor
	console  *console.Handler // nil: not served
	grpc     *grpc.Server
	// inProcessGRPC serves gateway and inside.
	inProcessGRPC *grpc.Server
	// peerGRPC serves the other members; nil without peer listeners.
	peerGRPC *grpc.Server
	gateway  *transport.InProcess // the gateway's way in
	inside   *transport.InProcess // that of calls the server makes itself
	http     *http.Server
	// metricsHTTP serves the metrics listeners, whose TLS net/http does not see either.
	metricsHTTP *http.Server
}

// New checks cfg, reads the TLS files and opens the listeners, so that a port
// in use is an error here. The caller must then call Run or Close.
func New(cfg Config, b *replica.Replica) (*Server, error) {
	return newServer(cfg, nodeOf(b))
}

func newServer(cfg Config, n node) (_ *Server, err error) {
	cfg = cfg.completed()
	s := &Server{cfg: cfg, node: n, log: cfg.Logger, conns: &transport.Connections{}, peerConns: &transport.Connections{},
		streams: &transport.Streams{}, health: health.NewServer()}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	s.requests = transport.NewRequests(cfg.RequestBytes, cfg.MaxRequestBytes+etcd.MessageOverhead,
		cfg.requestProgressTimeout)
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
	var understood func() error
	if cfg.Members != nil {
		understood = cfg.Members.CheckProtocols
	}
	own := prometheus.NewRegistry()
	status.Register(own, n.state, cfg.versions())
	s.checks = status.NewHealth(status.HealthConfig{
		Node: n.state, Reader: n.Reader, Alarms: n.Alarms, Probe: n.probe,
		Log: cfg.Logger, Timeout: cfg.RequestTimeout, Answer: etcd.Answer, Members: understood,
	}, own)
	endpoints := status.Endpoints{Registry: cfg.Registry, Log: cfg.Logger, Profiles: cfg.EnablePprof, Health: s.checks}
	s.gateway, s.inside = transport.NewInProcess(false, cfg.Tracing.Client()),
		transport.NewInProcess(true, cfg.Tracing.Client())
	s.slow = status.NewSlowRequests(own)
	if s.services, err = s.newServices(own, advertised); err != nil {
		return nil, err
	}
	s.answers = transport.NewAnswers(s.conns, cfg.AnswerBytes, cfg.answerProgressTimeout)
	s.grpc, s.inProcessGRPC = newGRPC(cfg, own, s.services, requestLog(cfg, s.slow, nil), s.answers, s.health)
	if len(s.peers) > 0 {
		s.peerGRPC = newPeerGRPC(cfg, n, s.services, requestLog(cfg, s.slow, forward.LogAttrs))
	}
	var gateway http.Handler
	if cfg.EnableGRPCGateway {
		if gateway, err = transport.NewGateway(s.gateway, cfg.MaxRequestBytes+etcd.MessageOverhead); err != nil {
			return nil, err
		}
		if cfg.TLS.ClientCertAuth {
			gateway = transport.RefuseNames(func() bool { return n.users.Rows().Enabled }, gateway)
		}
	}
	pages, err := clientHandler(cfg, endpoints, gateway)
	if err != nil {
		return nil, err
	}
	if cfg.Console {
		if s.console, err = newConsole(cfg, n, s.services, s.gateway); err != nil {
			return nil, err
		}
		pages = withConsole(s.console, pages)
	}
	monitored := http.NewServeMux()
	endpoints.Handle(monitored)
	// The metrics of the process may be there already: several parts of a program want them.
	if _, err := metric.Publish(cfg.Registry, own); err != nil {
		return nil, fmt.Errorf("server: metrics: %w", err)
	}
	if err := status.RegisterProcess(cfg.Registry); err != nil {
		return nil, fmt.Errorf("server: metrics: %w", err)
	}
	pages = s.requests.Bodies(s.answers.HTTP(transport.AllowHosts(cfg.HostWhitelist, pages)))
	s.http = transport.NewHTTPServer(pages, cfg.headTimeout, cfg.idleTimeout)
	s.metricsHTTP = transport.NewHTTPServer(s.answers.HTTP(monitored), cfg.headTimeout, cfg.idleTimeout)
	s.monitor = status.NewMonitor(n.state, s.health, s.streams.LoseLeader, s.log)
	return s, nil
}

// listen opens the listeners for clients and metrics.
func (s *Server) listen() error {
	files, err := openFiles(s.cfg.TLS, s.log)
	if err != nil {
		return err
	}
	options := transport.Options{Conns: s.conns, Listen: s.cfg.Listen, SocketMode: s.cfg.SocketMode, Files: files,
		Log: s.log}
	options.Limit = transport.NewLimit("client", s.cfg.MaxClientConnections, s.log)
	if s.clients, err = transport.Listen(s.cfg.ListenClientURLs, options); err != nil {
		return err
	}
	options.Limit = transport.NewLimit("metrics", s.cfg.MaxMetricsConnections, s.log)
	s.metrics, err = transport.Listen(s.cfg.ListenMetricsURLs, options)
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
	s.peers, err = transport.Listen(s.cfg.PeerURLs, transport.Options{
		Conns: s.peerConns, Limit: transport.NewLimit("peer", s.cfg.MaxPeerConnections, s.log), Listen: s.cfg.Listen,
		SocketMode: s.cfg.SocketMode, Credentials: true, Log: s.log,
	})
	return err
}

// openFiles returns nil for no files.
func openFiles(paths tlsfiles.Config, log *slog.Logger) (*tlsfiles.Files, error) {
	if paths.Empty() {
		return nil, nil
	}
	files, err := tlsfiles.Open(paths, log)
	if err != nil {
		return nil, fmt.Errorf("server: %w", err)
	}
	return files, nil
}

// ClientURLs are the URLs listened on for clients, with their real ports.
func (s *Server) ClientURLs() []string { return reachedURLs(s.clients) }

func reachedURLs(listeners []*transport.Listener) []string {
	urls := make([]string, len(listeners))
	for i, l := range listeners {
		urls[i] = l.Reached()
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
	for _, l := range s.peers {
		serve(l.URL(), func() error { return s.peerGRPC.Serve(l) })
		s.log.Info("serving peers", "url", l.Reached())
	}
	for _, l := range s.clients {
		r := transport.NewRouter(l, s.conns, s.requests, s.cfg.headTimeout, s.cfg.idleTimeout)
		serve(l.URL(), r.Serve)
		serve(l.URL(), func() error { return s.grpc.Serve(r.GRPC) })
		serve(l.URL(), func() error { return s.http.Serve(r.HTTP) })
		s.log.Info("serving clients", "url", l.Reached())
	}
	s.warnExposed()
	for _, l := range s.metrics {
		serve(l.URL(), func() error { return s.metricsHTTP.Serve(l) })
		s.log.Info("serving metrics", "url", l.Reached())
	}
	for _, p := range []*transport.InProcess{s.gateway, s.inside} {
		serve("in process", func() error { return s.inProcessGRPC.Serve(p.Listener()) })
	}
	monitorCtx, stopMonitor := context.WithCancel(context.Background())
	group.Go(func() { s.monitor.Run(monitorCtx) })
	group.Go(func() { s.checks.Run(monitorCtx) })
	if s.console != nil {
		group.Go(func() { s.console.Run(monitorCtx) })
	}

	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
		s.log.Error("stopping", "error", err)
	}
	stopMonitor()
	s.stop()
	group.Wait()
	s.streams.WaitReceivers()
	return err
}

// warnExposed logs which client URLs other hosts reach without TLS, or without
// authentication of clients.
func (s *Server) warnExposed() {
	var plain, open []string
	for _, l := range s.clients {
		if l.Local() {
			continue
		}
		if !l.Secure() {
			plain = append(plain, l.Reached())
		}
		if !l.Secure() || !s.cfg.TLS.ClientCertAuth {
			open = append(open, l.Reached())
		}
	}
	if len(plain) > 0 {
		s.log.Warn("serving clients of other hosts in plain text: others on the network can read and change their calls; "+
			"use https in --listen-client-urls, with --cert-file and --key-file", "urls", plain)
	}
	if len(open) > 0 && !s.node.users.Rows().Enabled {
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
	s.services.Stop()
	s.streams.Stop()

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
		// Before the graceful stops, which refuse the calls they make.
		s.services.Close(ctx)
		group.Go(func() { s.stopGRPC(ctx, s.inProcessGRPC, s.conns) })
		s.stopGRPC(ctx, s.grpc, s.conns)
	})
	if s.peerGRPC != nil {
		group.Go(func() { s.stopGRPC(ctx, s.peerGRPC, s.peerConns) })
	}
	group.Wait()
	s.gateway.Close(s.log)
	s.inside.Close(s.log)
	s.conns.CloseAll()
	s.peerConns.CloseAll()
}

// stopGRPC waits for calls until ctx ends; then they are cut. Connections that have
// not said what they want yet keep a gRPC server from stopping as well.
func (s *Server) stopGRPC(ctx context.Context, g *grpc.Server, cs *transport.Connections) {
	cut := context.AfterFunc(ctx, func() {
		s.log.Warn("calls were cut")
		cs.CloseAll()
		g.Stop()
	})
	g.GracefulStop()
	cut()
}

// Close releases the listeners of a server that was not run.
func (s *Server) Close() error {
	err := s.closeListeners()
	if s.services != nil {
		s.services.Stop()
		s.services.Close(context.Background())
	}
	for _, p := range []*transport.InProcess{s.gateway, s.inside} {
		if p != nil {
			p.Close(s.log)
		}
	}
	for _, g := range []*grpc.Server{s.grpc, s.inProcessGRPC, s.peerGRPC} {
		if g != nil {
			g.Stop()
		}
	}
	s.conns.CloseAll()
	s.peerConns.CloseAll()
	return err
}

func (s *Server) closeListeners() error {
	var errs []error
	for _, l := range slices.Concat(s.clients, s.metrics, s.peers) {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}
