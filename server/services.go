package server

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/sqlbrain/sqlbrain/server/auth/guard"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/forward"
	"github.com/sqlbrain/sqlbrain/server/replica"
	"github.com/sqlbrain/sqlbrain/server/status"
)

// node is the parts of a replica that a server uses.
type node struct {
	etcd.Components
	state interface {
		forward.Node
		status.Node
	}
	probe       status.Probe
	users       guard.Users
	attachments guard.Attachments
}

// nodeOf returns the parts of r.
func nodeOf(r *replica.Replica) node {
	return node{Components: etcd.ComponentsOf(r), state: r, probe: r.Probe, users: r.Auth, attachments: r.Attachments}
}

// newServices returns the handlers of all RPCs, and registers their metrics with r.
// clientURLs are those that a node without a cluster lists for itself, also as its peer URLs if it has none: some
// clients of the JSON API expect a list.
func (s *Server) newServices(r prometheus.Registerer, clientURLs []string) (*etcd.Services, error) {
	cfg := s.cfg
	g, err := guard.New(guard.Config{
		Users: s.node.users, Attachments: s.node.attachments, Logger: cfg.Logger,
		Token: cfg.AuthToken, TokenTTL: cfg.AuthTokenTTL, BcryptCost: cfg.BcryptCost,
		CommonNames: cfg.TLS.ClientCertAuth,
	})
	if err != nil {
		return nil, err
	}
	promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{
		Name: "etcd_debugging_auth_revision", Help: "The current revision of auth store.",
	}, func() float64 { return float64(g.Revision()) })
	r.MustRegister(g.Collectors()...)
	if cfg.Router != nil {
		s.forward = forward.New(forward.Config{Router: cfg.Router, Node: s.node.state, Guard: g, Timeout: cfg.RequestTimeout,
			ReadAttempt: cfg.readAttempt})
		r.MustRegister(s.forward.Collectors()...)
	}
	peerURLs := cfg.PeerURLs
	if len(peerURLs) == 0 {
		peerURLs = clientURLs
	}
	return etcd.New(etcd.Config{
		Logger: cfg.Logger, Registerer: r, Components: s.node.Components, Guard: g, Streams: s.streams,
		Connect: s.inside.Connect, Forward: s.forward, Mover: cfg.Mover, Members: cfg.Members,
		Self: member.Member{ID: s.node.Node.MemberID(), Name: cfg.Name, PeerURLs: peerURLs, ClientURLs: clientURLs,
			Alive: true}, Audit: cfg.Audit,
		SnapshotDir: cfg.SnapshotDir, MaxRequestBytes: cfg.MaxRequestBytes, MaxTxnOps: cfg.MaxTxnOps,
	})
}
