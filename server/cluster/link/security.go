package link

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/loglimit"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Members is the cluster's list of members, a *member.Registry. Its methods may be called by
// several goroutines.
type Members interface {
	// Cached returns the members that were read last.
	Cached() []member.Member
	// Refresh reads the members again. It bounds how often that happens for all callers
	// together.
	Refresh(ctx context.Context) error
}

// SecurityConfig configures a Security. Certificate and Members are required.
type SecurityConfig struct {
	Certificate *Certificate
	Members     Members
	Logger      *slog.Logger // discards
}

// Security authenticates the members of a cluster to each other. Both sides of a
// connection present a certificate, over TLS 1.3. A dialer requires the certificate of the
// member that it wants to reach, an acceptor that of any current member. Checks that are
// configured with files apply in addition. Its methods may be called by several goroutines.
type Security struct {
	cfg SecurityConfig

	mu       sync.Mutex
	accepted map[*acceptedConn]struct{}
	rejected loglimit.Log
	pending  []net.Conn // whose handshake has not ended, the oldest first

	rejections prometheus.Counter
}

// maxPending bounds the connections whose handshake has not ended. The oldest ends when another begins: processes
// that are no members cannot use up the connections that the port may have, nor have many wait for a Refresh. Members
// among them connect again.
const maxPending = 32

// begin adds a connection whose handshake begins. The caller calls the function when it has ended.
func (s *Security) begin(conn net.Conn) (ended func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) == maxPending {
		_ = s.pending[0].Close() // fails if the other side has closed it
		s.pending = slices.Delete(s.pending, 0, 1)
	}
	s.pending = append(s.pending, conn)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.pending = slices.DeleteFunc(s.pending, func(c net.Conn) bool { return c == conn })
	}
}

// NewSecurity returns a Security without connections.
func NewSecurity(cfg SecurityConfig) *Security {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Security{
		cfg: cfg, accepted: make(map[*acceptedConn]struct{}),
		rejections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_peer_connections_rejected_total",
			Help: "Connections to the peer port that were rejected: the process that connects is not a current member, or " +
				"the handshake failed.",
		}),
	}
}

// Rejections is the metric of connections that were rejected.
func (s *Security) Rejections() prometheus.Collector { return s.rejections }

// errUnknown: the certificate of the process that connects is not a member's.
var errUnknown = errors.New("the certificate is not that of a current member")

// connect performs a dialer's handshake with the member id on conn. It returns the
// incarnation of the process that accepted.
func (s *Security) connect(ctx context.Context, conn net.Conn, id uint64, serverName string) (net.Conn, uint64, error) {
	m, ok, err := s.find(ctx, func(m member.Member) bool { return m.ID == id })
	switch {
	case err != nil:
		return nil, 0, err
	case !ok:
		return nil, 0, fmt.Errorf("%x is not a member", id)
	}
	config := s.cfg.Certificate.client(serverName)
	allowed := config.VerifyConnection
	config.InsecureSkipVerify = config.RootCAs == nil // VerifyConnection checks the fingerprint
	config.VerifyConnection = func(state tls.ConnectionState) error {
		err := verify(allowed, state)
		if err == nil {
			m, err = s.expect(ctx, m, fingerprint(state.PeerCertificates[0].Raw))
		}
		return err
	}
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, 0, fmt.Errorf("TLS handshake: %w", err)
	}
	return secured, m.Incarnation, nil
}

// expect returns the current state of the member want, which must have the fingerprint got.
func (s *Security) expect(ctx context.Context, want member.Member, got string) (member.Member, error) {
	m, ok, err := s.find(ctx, func(m member.Member) bool { return m.ID == want.ID && m.Fingerprint == got })
	if ok || err != nil {
		return m, err
	}
	if other, ok := s.lookUp(func(m member.Member) bool { return m.Fingerprint == got }); ok {
		return m, fmt.Errorf("%w: it has the certificate of member %v", ErrOtherNode, other)
	}
	return m, fmt.Errorf("%w: it has a certificate that no member has published", ErrOtherNode)
}

// find returns the first member that ok accepts, after a Refresh if there is none before.
func (s *Security) find(ctx context.Context, ok func(member.Member) bool) (member.Member, bool, error) {
	if m, found := s.lookUp(ok); found {
		return m, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, timing.PeerRefresh)
	defer cancel()
	if err := s.cfg.Members.Refresh(ctx); err != nil {
		return member.Member{}, false, fmt.Errorf("reading the members: %w", err)
	}
	m, found := s.lookUp(ok)
	return m, found, nil
}

func (s *Security) lookUp(ok func(member.Member) bool) (member.Member, bool) {
	members := s.cfg.Members.Cached()
	if i := slices.IndexFunc(members, ok); i >= 0 {
		return members[i], true
	}
	return member.Member{}, false
}

func verify(check func(tls.ConnectionState) error, state tls.ConnectionState) error {
	if check == nil {
		return nil
	}
	return check(state)
}
