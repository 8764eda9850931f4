package peer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// Member is what connections to and from a member are checked against.
type Member struct {
	ID            uint64
	Name, Version string
	// Incarnation tells one process of the member from the next.
	Incarnation uint64
	// Fingerprint is of the certificate that its process shows, as Certificate has
	// it; empty if none was published.
	Fingerprint string
}

func (m Member) String() string { return fmt.Sprintf("%q (%x)", m.Name, m.ID) }

// Members are the members of the cluster. Its methods may be called by several
// goroutines.
type Members interface {
	// Current returns the members as they were last seen.
	Current() []Member
	// Refresh looks at the table. It bounds how often that is done, whoever calls.
	Refresh(ctx context.Context) error
}

// SecurityConfig configures a Security. Certificate and Members are needed.
type SecurityConfig struct {
	Certificate *Certificate
	Members     Members
	// Insecure does not require the fingerprint of a member: of a process that connects, and
	// of a member that has published none. What an older version accepted is accepted: certificates
	// of the configured authorities, or connections without TLS if there are none.
	Insecure bool
	Logger   *slog.Logger // discards
}

// Security authenticates the members of a cluster to each other. Both sides of a
// connection show a certificate, over TLS 1.3. A dialer requires the one of the member that it
// wants to reach, an acceptor the one of any current member. What is configured
// in files is required in addition. Its methods may be called by several goroutines.
type Security struct {
	SecurityConfig

	mu       sync.Mutex
	accepted map[*acceptedConn]struct{}
	rejected limitedLog
	unknown  chan struct{} // has an element for each process that waits

	rejections prometheus.Counter
}

const (
	// handshakeTimeout bounds an acceptor's handshake, gRPC's own bound set aside.
	handshakeTimeout = 10 * time.Second
	// refreshTimeout bounds how long a handshake waits for a look at the members.
	refreshTimeout = 2 * time.Second
	// maxUnknown bounds how many processes with unknown certificates wait for one at a
	// time. Others are rejected, and members among them connect again.
	maxUnknown = 256
)

// NewSecurity returns the rules of connections between members.
func NewSecurity(cfg SecurityConfig) *Security {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Security{
		SecurityConfig: cfg, accepted: make(map[*acceptedConn]struct{}), unknown: make(chan struct{}, maxUnknown),
		rejections: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sqlbrain_peer_connections_rejected_total",
			Help: "Connections to the peer port that were rejected: the process that connects is not a current member, or the handshake failed.",
		}),
	}
}

// Rejections is the metric of connections that were rejected.
func (s *Security) Rejections() prometheus.Collector { return s.rejections }

// errUnknown: an acceptor does not know the certificate of the process that connects.
var errUnknown = errors.New("the certificate is not that of a current member")

// connect makes the handshake with the member id on conn, which a dialer connected. secure
// says that the member's URL asks for TLS, which matters for members without
// a fingerprint only. It returns the incarnation of the process that was reached, 0 if
// it did not prove it.
func (s *Security) connect(ctx context.Context, conn net.Conn, id uint64, serverName string, secure bool) (net.Conn, uint64, error) {
	m, ok, err := s.find(ctx, func(m Member) bool { return m.ID == id && m.Fingerprint != "" })
	if err != nil {
		return nil, 0, err
	}
	config := s.Certificate.client(serverName)
	switch {
	case ok:
		allowed := config.VerifyConnection
		config.InsecureSkipVerify = config.RootCAs == nil // the fingerprint is verified
		config.VerifyConnection = func(state tls.ConnectionState) error {
			err := verify(allowed, state)
			if err == nil {
				m, err = s.expect(ctx, m, fingerprint(state.PeerCertificates[0].Raw))
			}
			return err
		}
	case !s.Insecure:
		return nil, 0, s.withoutCertificate(id)
	case !secure:
		return conn, 0, nil
	} // else an older version, which has certificates in files only
	secured := tls.Client(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, 0, fmt.Errorf("TLS handshake: %w", err)
	}
	return secured, m.Incarnation, nil
}

// expect returns the member want, which must have the fingerprint got now.
func (s *Security) expect(ctx context.Context, want Member, got string) (Member, error) {
	m, ok, err := s.find(ctx, func(m Member) bool { return m.ID == want.ID && m.Fingerprint == got })
	if ok || err != nil {
		return m, err
	}
	if other, ok := s.lookUp(func(m Member) bool { return m.Fingerprint == got }); ok {
		return m, fmt.Errorf("%w: it has the certificate of member %v", ErrOtherNode, other)
	}
	return m, fmt.Errorf("%w: it has a certificate that no member has published", ErrOtherNode)
}

func (s *Security) withoutCertificate(id uint64) error {
	m, ok := s.lookUp(func(m Member) bool { return m.ID == id })
	if !ok {
		return fmt.Errorf("%w: %x is not a member", ErrNoCertificate, id)
	}
	return fmt.Errorf("%w: its version, %q, may be an older one; upgrade it, or use --peer-insecure on all members while versions are mixed",
		ErrNoCertificate, m.Version)
}

// find returns the member that ok accepts. It refreshes the members if there is none.
func (s *Security) find(ctx context.Context, ok func(Member) bool) (Member, bool, error) {
	if m, found := s.lookUp(ok); found {
		return m, true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, refreshTimeout)
	defer cancel()
	if err := s.Members.Refresh(ctx); err != nil {
		return Member{}, false, fmt.Errorf("reading the members: %w", err)
	}
	m, found := s.lookUp(ok)
	return m, found, nil
}

func (s *Security) lookUp(ok func(Member) bool) (Member, bool) {
	members := s.Members.Current()
	if i := slices.IndexFunc(members, ok); i >= 0 {
		return members[i], true
	}
	return Member{}, false
}

func verify(check func(tls.ConnectionState) error, state tls.ConnectionState) error {
	if check == nil {
		return nil
	}
	return check(state)
}

// Accept returns the credentials of a gRPC server for other members.
func (s *Security) Accept() credentials.TransportCredentials {
	return acceptor{insecure.NewCredentials(), s}
}

// acceptor are Security's credentials for a gRPC server.
type acceptor struct {
	credentials.TransportCredentials // of plain connections
	s                                *Security
}

func (a acceptor) Clone() credentials.TransportCredentials { return a }

func (a acceptor) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	accepted, info, err := a.handshake(conn)
	if err != nil && !errors.Is(err, io.EOF) { // a probe that sent nothing
		a.s.rejections.Inc()
		a.s.rejected.warn(a.s.Logger, "rejected a peer connection", "remote", conn.RemoteAddr().String(), "error", err)
	}
	return accepted, info, err
}

func (a acceptor) handshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	config := a.s.Certificate.server()
	if a.s.Insecure && config.ClientCAs == nil {
		begun, secure, err := peek(conn)
		if err != nil {
			return nil, nil, err
		}
		if conn = begun; !secure {
			return a.TransportCredentials.ServerHandshake(conn)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
	defer cancel()
	var from []Member
	switch {
	case a.s.Insecure && config.ClientCAs == nil:
		config.ClientAuth = tls.NoClientCert
	case a.s.Insecure:
	default:
		allowed := config.VerifyConnection
		config.VerifyConnection = func(state tls.ConnectionState) (err error) {
			if err = verify(allowed, state); err == nil {
				from, err = a.s.admit(ctx, fingerprint(state.PeerCertificates[0].Raw))
			}
			return err
		}
	}
	secured := tls.Server(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	info := credentials.TLSInfo{
		State:          secured.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	if a.s.Insecure {
		return secured, info, nil
	}
	accepted, err := a.s.keep(secured, from)
	return accepted, info, err
}

// admit returns the current members that have the fingerprint: several if they were
// configured with the same certificate.
func (s *Security) admit(ctx context.Context, got string) ([]Member, error) {
	has := func(m Member) bool { return m.Fingerprint == got }
	if _, ok := s.lookUp(has); !ok {
		select {
		case s.unknown <- struct{}{}:
			defer func() { <-s.unknown }()
		default:
			return nil, fmt.Errorf("%w, and too many processes wait for a look at the members", errUnknown)
		}
	}
	if _, ok, err := s.find(ctx, has); err != nil || !ok {
		return nil, cmp.Or(err, errUnknown)
	}
	var from []Member
	for _, m := range s.Members.Current() {
		if has(m) {
			from = append(from, m)
		}
	}
	return from, nil
}

// acceptedConn is a connection of a member. gRPC closes it, except after an error
// before it has a transport, which follows a failed Read or Write.
type acceptedConn struct {
	net.Conn
	s    *Security
	from []Member
}

// keep remembers the connection, so that Revoke can close it.
func (s *Security) keep(conn net.Conn, from []Member) (net.Conn, error) {
	c := &acceptedConn{Conn: conn, s: s, from: from}
	s.mu.Lock()
	s.accepted[c] = struct{}{}
	s.mu.Unlock()
	if !s.isCurrent(from) { // a Revoke before the connection was kept did not see it
		return nil, errors.Join(errUnknown, c.Close())
	}
	return c, nil
}

// isCurrent reports whether one of the processes is still its member's.
func (s *Security) isCurrent(from []Member) bool {
	_, ok := s.lookUp(func(now Member) bool {
		return slices.ContainsFunc(from, func(m Member) bool { return m.ID == now.ID && m.Incarnation == now.Incarnation })
	})
	return ok
}

// Revoke closes the connections of processes that are no longer members'. It is
// called after each look at the members.
func (s *Security) Revoke() {
	s.mu.Lock()
	var over []*acceptedConn
	for c := range s.accepted {
		if !s.isCurrent(c.from) {
			over = append(over, c)
		}
	}
	s.mu.Unlock()
	for _, c := range over {
		s.Logger.Info("closing the peer connection of a process that is no longer a member's",
			"member", fmt.Sprint(c.from), "remote", c.RemoteAddr().String())
		_ = c.Close() // the other side may have been faster
	}
}

func (c *acceptedConn) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if err != nil {
		c.forget()
	}
	return n, err
}

func (c *acceptedConn) Close() error {
	c.forget()
	return c.Conn.Close()
}

func (c *acceptedConn) forget() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	delete(c.s.accepted, c)
}

// begunConn is a connection of which the first byte was read.
type begunConn struct {
	net.Conn
	first []byte // empty once it was read again
}

// peek reports whether conn begins with a TLS handshake. The connection that it
// returns begins with the byte that was read.
func peek(conn net.Conn) (*begunConn, bool, error) {
	const handshakeRecord = 0x16
	first := make([]byte, 1)
	if _, err := conn.Read(first); err != nil {
		return nil, false, err
	}
	return &begunConn{Conn: conn, first: first}, first[0] == handshakeRecord, nil
}

func (c *begunConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 && len(p) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// limitedLog drops lines that others can cause without a bound: it writes one a second, which
// says how many were dropped before.
type limitedLog struct {
	mu      sync.Mutex
	last    time.Time
	dropped int
}

func (l *limitedLog) warn(log *slog.Logger, message string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.last) < time.Second {
		l.dropped++
		return
	}
	log.Warn(message, append(args, "not_logged_before", l.dropped)...)
	l.last, l.dropped = time.Now(), 0
}
