package link

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/timing"
)

// Accept returns the credentials of a gRPC server for other members.
func (s *Security) Accept() credentials.TransportCredentials {
	return acceptor{insecure.NewCredentials(), s}
}

// acceptor is the handshake of a gRPC server.
type acceptor struct {
	credentials.TransportCredentials // of plain connections
	s                                *Security
}

func (a acceptor) Clone() credentials.TransportCredentials { return a }

func (a acceptor) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	accepted, info, err := a.handshake(conn)
	if err != nil && !errors.Is(err, io.EOF) { // the other side closed without sending, as a port check does
		a.s.rejections.Inc()
		a.s.rejected.Warn(a.s.cfg.Logger, "rejected a peer connection", "remote", conn.RemoteAddr().String(), "error", err)
	}
	return accepted, info, err
}

func (a acceptor) handshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	defer a.s.begin(conn)()
	config := a.s.cfg.Certificate.server()
	ctx, cancel := context.WithTimeout(context.Background(), timing.PeerHandshake)
	defer cancel()
	var from []member.Member
	allowed := config.VerifyConnection
	config.VerifyConnection = func(state tls.ConnectionState) (err error) {
		if err = verify(allowed, state); err == nil {
			from, err = a.s.admit(ctx, fingerprint(state.PeerCertificates[0].Raw))
		}
		return err
	}
	secured := tls.Server(conn, config)
	if err := secured.HandshakeContext(ctx); err != nil {
		return nil, nil, err
	}
	info := credentials.TLSInfo{
		State:          secured.ConnectionState(),
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	accepted, err := a.s.keep(secured, from)
	return accepted, info, err
}

// admit returns the current members with the fingerprint. These are several if the same
// certificate was configured for them.
func (s *Security) admit(ctx context.Context, got string) ([]member.Member, error) {
	has := func(m member.Member) bool { return m.Fingerprint == got }
	if _, ok, err := s.find(ctx, has); err != nil || !ok {
		return nil, cmp.Or(err, errUnknown)
	}
	var from []member.Member
	for _, m := range s.cfg.Members.Cached() {
		if has(m) {
			from = append(from, m)
		}
	}
	return from, nil
}

// acceptedConn is a connection from a member. gRPC closes it, except if a Read or a Write
// fails before the connection has a transport.
type acceptedConn struct {
	net.Conn
	s    *Security
	from []member.Member
}

// keep adds the connection to those that Revoke checks.
func (s *Security) keep(conn net.Conn, from []member.Member) (net.Conn, error) {
	c := &acceptedConn{Conn: conn, s: s, from: from}
	s.mu.Lock()
	s.accepted[c] = struct{}{}
	s.mu.Unlock()
	if !s.isCurrent(from) { // a concurrent Revoke may not have seen the connection
		return nil, errors.Join(errUnknown, c.Close())
	}
	return c, nil
}

// isCurrent reports whether one of the processes is still that of its member.
func (s *Security) isCurrent(from []member.Member) bool {
	_, ok := s.lookUp(func(now member.Member) bool {
		return slices.ContainsFunc(from, func(m member.Member) bool {
			return m.ID == now.ID &&
				m.Incarnation == now.Incarnation
		})
	})
	return ok
}

// Revoke closes the connections from processes that were removed or replaced. The owner
// of the Security calls it each time it has read the members.
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
		s.cfg.Logger.Info("closing the peer connection of a process that is no longer a member's",
			"member", fmt.Sprint(c.from), "remote", c.RemoteAddr().String())
		_ = c.Close() // fails if the other side has closed it
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
