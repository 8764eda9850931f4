package server

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/soheilhy/cmux"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// TLSConfig names the PEM files of https and unixs listeners. They are read again
// when they change; a change that cannot be read is logged, and what was read
// before stays in use.
type TLSConfig struct {
	CertFile, KeyFile string
	// TrustedCAFile holds the authorities of client certificates. As in etcd,
	// clients must have a certificate if it is given.
	TrustedCAFile string
	// ClientCertAuth requires client certificates; it needs TrustedCAFile.
	ClientCertAuth bool
}

func (c TLSConfig) empty() bool { return c == TLSConfig{} }

// tlsFiles makes the tls.Config of each handshake from the files.
type tlsFiles struct {
	paths TLSConfig
	log   *slog.Logger

	mu     sync.Mutex
	stamps []os.FileInfo // of the files config was made from
	config *tls.Config
}

func newTLSFiles(paths TLSConfig, log *slog.Logger) (*tlsFiles, error) {
	if paths.CertFile == "" || paths.KeyFile == "" {
		return nil, errors.New("server: TLS needs both a certificate file and a key file")
	}
	if paths.ClientCertAuth && paths.TrustedCAFile == "" {
		return nil, errors.New("server: client certificate authentication needs a trusted CA file")
	}
	f := &tlsFiles{paths: paths, log: log}
	stamps, err := f.stat()
	if err != nil {
		return nil, fmt.Errorf("server: TLS: %w", err)
	}
	if f.config, err = f.load(); err != nil {
		return nil, fmt.Errorf("server: TLS: %w", err)
	}
	f.stamps = stamps
	return f, nil
}

// listenerConfig is the configuration of a listener: it takes the files' newest
// content for every handshake.
func (f *tlsFiles) listenerConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current(), nil },
	}
}

func (f *tlsFiles) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	stamps, err := f.stat()
	if err == nil && unchanged(stamps, f.stamps) {
		return f.config
	}
	var config *tls.Config
	if err == nil {
		config, err = f.load()
	}
	if err != nil {
		// Files that are being replaced may not fit together for a moment.
		f.log.Warn("TLS files could not be read again; the old ones stay in use", "error", err)
		return f.config
	}
	f.log.Info("TLS files were read again", "cert_file", f.paths.CertFile)
	f.config, f.stamps = config, stamps
	return f.config
}

func (f *tlsFiles) load() (*tls.Config, error) {
	cert, err := tls.LoadX509KeyPair(f.paths.CertFile, f.paths.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("certificate %s with key %s: %w", f.paths.CertFile, f.paths.KeyFile, err)
	}
	config := &tls.Config{
		MinVersion:   tls.VersionTLS12,
		Certificates: []tls.Certificate{cert},
		NextProtos:   []string{"h2", "http/1.1"},
		// A resumed session would outlive the removal of its client's authority.
		SessionTicketsDisabled: true,
	}
	if f.paths.TrustedCAFile != "" {
		pem, err := os.ReadFile(f.paths.TrustedCAFile)
		if err != nil {
			return nil, err
		}
		config.ClientCAs = x509.NewCertPool()
		if !config.ClientCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("no certificate in %s", f.paths.TrustedCAFile)
		}
		config.ClientAuth = tls.RequireAndVerifyClientCert
	}
	return config, nil
}

func (f *tlsFiles) stat() ([]os.FileInfo, error) {
	var infos []os.FileInfo
	for _, path := range []string{f.paths.CertFile, f.paths.KeyFile, f.paths.TrustedCAFile} {
		if path == "" {
			continue
		}
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		infos = append(infos, info)
	}
	return infos, nil
}

func unchanged(a, b []os.FileInfo) bool {
	for i := range a {
		if !os.SameFile(a[i], b[i]) || a[i].Size() != b[i].Size() || !a[i].ModTime().Equal(b[i].ModTime()) {
			return false
		}
	}
	return true
}

const handshakeTimeout = 10 * time.Second

// tlsListener accepts connections whose handshake is made by their first Read,
// so that a slow client does not hold up the others.
type tlsListener struct {
	net.Listener
	config *tls.Config
	log    *slog.Logger
}

func (l *tlsListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &tlsConn{Conn: tls.Server(c, l.config), log: l.log}, nil
}

type tlsConn struct {
	*tls.Conn
	log       *slog.Logger
	handshake sync.Once
	err       error
}

func (c *tlsConn) Read(p []byte) (int, error) {
	c.handshake.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), handshakeTimeout)
		defer cancel()
		if c.err = c.HandshakeContext(ctx); c.err != nil {
			c.log.Warn("connection rejected", "remote", c.RemoteAddr().String(), "error", c.err)
		}
	})
	if c.err != nil {
		return 0, c.err
	}
	return c.Conn.Read(p)
}

// doneHandshake are gRPC's credentials for connections whose handshake, if they
// have one, was made before gRPC got them.
type doneHandshake struct {
	credentials.TransportCredentials
}

func newDoneHandshake() doneHandshake {
	return doneHandshake{insecure.NewCredentials()}
}

func (d doneHandshake) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if mc, ok := conn.(*cmux.MuxConn); ok {
		if tc, ok := mc.Conn.(*tlsConn); ok {
			return conn, credentials.TLSInfo{
				State:          tc.ConnectionState(),
				CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
			}, nil
		}
	}
	return d.TransportCredentials.ServerHandshake(conn)
}

func (d doneHandshake) Clone() credentials.TransportCredentials { return newDoneHandshake() }
