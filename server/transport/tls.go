package transport

import (
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/sqlbrain/sqlbrain/server/loglimit"
)

// tlsListener accepts connections whose handshake is made by their first Read,
// so that a slow client does not hold up the others. Callers must set a deadline
// before that Read.
type tlsListener struct {
	net.Listener
	config   *tls.Config
	log      *slog.Logger
	rejected loglimit.Log // for handshakes that failed: every process that reaches the listener can make many
}

func (l *tlsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tlsConn{Conn: tls.Server(c, l.config), listener: l}, nil
}

type tlsConn struct {
	*tls.Conn
	listener  *tlsListener
	handshake sync.Once
	err       error
}

func (c *tlsConn) Read(p []byte) (int, error) {
	c.handshake.Do(func() {
		if c.err = c.Handshake(); c.err != nil {
			c.listener.rejected.Warn(c.listener.log, "connection rejected", "remote", c.RemoteAddr().String(), "error", c.err)
		}
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}

// tlsKey is of contexts of HTTP requests; its value is a *tlsConn.
type tlsKey struct{}

// rememberTLS is for http.Server.ConnContext: net/http does not see that a connection has
// TLS, since it was taken off before.
func rememberTLS(ctx context.Context, c net.Conn) context.Context {
	if t := tlsUnder(c); t != nil {
		return context.WithValue(ctx, tlsKey{}, t)
	}
	return ctx
}

// tlsUnder returns the TLS connection that c is, or was routed from, or nil.
func tlsUnder(c net.Conn) *tlsConn {
	if r, ok := c.(*routedConn); ok {
		c = r.Conn
	}
	t, _ := c.(*tlsConn)
	return t
}

// tlsOf returns the connection of r if it has TLS, or nil.
func tlsOf(r *http.Request) *tlsConn {
	c, _ := r.Context().Value(tlsKey{}).(*tlsConn)
	return c
}

// Encrypted reports whether TLS protects the connection of r, which came to a server of NewHTTPServer.
func Encrypted(r *http.Request) bool { return tlsOf(r) != nil }

// Credentials are gRPC's for connections of a Router or of an InProcess, whose handshake, if they have one, was made
// before gRPC got them.
func Credentials() credentials.TransportCredentials { return doneHandshake{insecure.NewCredentials()} }

type doneHandshake struct {
	credentials.TransportCredentials
}

func (d doneHandshake) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if own, ok := conn.(ownConn); ok {
		return own, insideInfo{credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity}}, nil
	}
	if t := tlsUnder(conn); t != nil {
		return conn, credentials.TLSInfo{
			State:          t.ConnectionState(),
			CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
		}, nil
	}
	return d.TransportCredentials.ServerHandshake(conn)
}

func (d doneHandshake) Clone() credentials.TransportCredentials { return Credentials() }
