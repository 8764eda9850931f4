package server

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
)

// authority makes certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newAuthority(t *testing.T, name string) *authority {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	return &authority{cert: cert, key: key, pem: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})}
}

// issue returns a certificate for name at 127.0.0.1, and its key, in PEM.
func (a *authority) issue(t *testing.T, name string) (certPEM, keyPEM []byte) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	require.NoError(t, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
}

func (a *authority) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// clientConfig trusts a, and shows a certificate of as if that is not nil.
func (a *authority) clientConfig(t *testing.T, as *authority) *tls.Config {
	c := &tls.Config{RootCAs: a.pool()}
	if as != nil {
		pair, err := tls.X509KeyPair(as.issue(t, "client"))
		require.NoError(t, err)
		c.Certificates = []tls.Certificate{pair}
	}
	return c
}

// tlsDir holds the files of a server, which a test may replace.
type tlsDir struct{ TLSConfig }

func newTLSDir(t *testing.T) tlsDir {
	dir := t.TempDir()
	return tlsDir{TLSConfig{CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem")}}
}

func (d *tlsDir) trust(t *testing.T, a *authority) {
	d.TrustedCAFile = filepath.Join(filepath.Dir(d.CertFile), "ca.pem")
	replaceFile(t, d.TrustedCAFile, a.pem)
}

func (d *tlsDir) write(t *testing.T, a *authority, name string) {
	cert, key := a.issue(t, name)
	replaceFile(t, d.CertFile, cert)
	replaceFile(t, d.KeyFile, key)
}

// replaceFile puts a new file in the place of an old one, as certificate managers do.
func replaceFile(t *testing.T, path string, content []byte) {
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}

func startTLS(t *testing.T, n *fakeNode, d tlsDir) *Server {
	return startFake(t, n, newFakeStream(), func(c *Config) {
		c.ListenClientURLs = []string{"https://127.0.0.1:0"}
		c.TLS = d.TLSConfig
	})
}

// serverName makes a handshake with s and returns whose certificate it showed.
func serverName(t *testing.T, s *Server, c *tls.Config) (string, error) {
	conn, err := tls.Dial("tcp", s.clients[0].listener.Addr().String(), c)
	if err != nil {
		return "", err
	}
	defer func() { require.NoError(t, conn.Close()) }()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

func TestTLSServesEverythingOnOnePort(t *testing.T) {
	ca, d := newAuthority(t, "ca"), newTLSDir(t)
	d.write(t, ca, "server")
	s := startTLS(t, &fakeNode{}, d)

	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), TLS: ca.clientConfig(t, nil), Logger: zap.NewNop()})
	require.NoError(t, err)
	_, err = c.Get(testContext(t), "k")
	require.NoError(t, err)
	require.NoError(t, c.Close())

	for proto, force := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		tr := &http.Transport{TLSClientConfig: ca.clientConfig(t, nil), ForceAttemptHTTP2: force}
		h := &http.Client{Transport: tr}
		for range 3 { // a protocol error would end the connection after the first
			resp, err := h.Get(s.ClientURLs()[0] + "/version")
			require.NoError(t, err)
			require.Equal(t, proto, resp.Proto)
			body, err := io.ReadAll(resp.Body)
			require.NoError(t, err)
			require.NoError(t, resp.Body.Close())
			require.Equal(t, versionBody, string(body))
		}
		status, _ := callURL(t, h, http.MethodPost, s.ClientURLs()[0]+"/v3/kv/range", "{}")
		require.Equal(t, 400, status)
		tr.CloseIdleConnections()
	}
	_, err = serverName(t, s, &tls.Config{RootCAs: newAuthority(t, "other").pool()})
	require.Error(t, err)
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	ca, d := newAuthority(t, "ca"), newTLSDir(t)
	d.write(t, ca, "first")
	s := startTLS(t, &fakeNode{}, d)
	client := ca.clientConfig(t, nil)
	require.Equal(t, "first", must(serverName(t, s, client)))
	d.write(t, ca, "second")
	require.Equal(t, "second", must(serverName(t, s, client)))

	replaceFile(t, d.KeyFile, []byte("not a key"))
	require.Equal(t, "second", must(serverName(t, s, client)), "what cannot be read leaves the old one in use")
	require.NoError(t, os.Remove(d.CertFile))
	require.Equal(t, "second", must(serverName(t, s, client)))
	d.write(t, ca, "third")
	require.Equal(t, "third", must(serverName(t, s, client)))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// getOver makes a call over a connection of its own.
func getOver(t *testing.T, s *Server, c *tls.Config) error {
	conn, err := grpc.NewClient(s.clients[0].listener.Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(c)))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close()) }()
	_, err = pb.NewKVClient(conn).Range(testContext(t), &pb.RangeRequest{Key: key})
	return err
}

func TestClientCertificates(t *testing.T) {
	ca, clients, d := newAuthority(t, "ca"), newAuthority(t, "clients"), newTLSDir(t)
	d.write(t, ca, "server")
	d.trust(t, clients)
	d.ClientCertAuth = true
	s := startTLS(t, &fakeNode{}, d)

	require.NoError(t, getOver(t, s, ca.clientConfig(t, clients)))
	require.Error(t, getOver(t, s, ca.clientConfig(t, nil)), "without a certificate")
	others := newAuthority(t, "others")
	require.Error(t, getOver(t, s, ca.clientConfig(t, others)), "with a certificate of somebody else")

	d.trust(t, others)
	require.NoError(t, getOver(t, s, ca.clientConfig(t, others)), "the authorities are read again too")
	require.Error(t, getOver(t, s, ca.clientConfig(t, clients)))
}

func TestHandlersSeeTheClientCertificate(t *testing.T) {
	ca, clients, d := newAuthority(t, "ca"), newAuthority(t, "clients"), newTLSDir(t)
	d.write(t, ca, "server")
	d.trust(t, clients)
	seen := make(chan *peer.Peer, 1)
	n := &fakeNode{onRange: func(ctx context.Context) {
		p, _ := peer.FromContext(ctx)
		seen <- p
	}}
	s := startTLS(t, n, d)
	require.NoError(t, getOver(t, s, ca.clientConfig(t, clients)))
	info, ok := (<-seen).AuthInfo.(credentials.TLSInfo)
	require.True(t, ok)
	require.Equal(t, "client", info.State.VerifiedChains[0][0].Subject.CommonName)
}

func TestTLSFilesThatDoNotFit(t *testing.T) {
	ca := newAuthority(t, "ca")
	good := func(t *testing.T) tlsDir {
		d := newTLSDir(t)
		d.write(t, ca, "server")
		d.trust(t, ca)
		return d
	}
	tests := map[string]struct {
		spoil func(*testing.T, *tlsDir)
		want  string
	}{
		"no key":                 {func(_ *testing.T, d *tlsDir) { d.KeyFile = "" }, "both a certificate file and a key file"},
		"no authority":           {func(_ *testing.T, d *tlsDir) { d.ClientCertAuth, d.TrustedCAFile = true, "" }, "needs a trusted CA file"},
		"no such file":           {func(_ *testing.T, d *tlsDir) { d.CertFile += ".missing" }, "cert.pem.missing"},
		"not a certificate":      {func(t *testing.T, d *tlsDir) { replaceFile(t, d.CertFile, []byte("x")) }, "cert.pem"},
		"key of another":         {func(t *testing.T, d *tlsDir) { _, k := ca.issue(t, "x"); replaceFile(t, d.KeyFile, k) }, "private key does not match"},
		"authority without PEM":  {func(t *testing.T, d *tlsDir) { replaceFile(t, d.TrustedCAFile, []byte("x")) }, "no certificate in"},
		"https without any file": {func(_ *testing.T, d *tlsDir) { d.TLSConfig = TLSConfig{} }, "a certificate and a key are needed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := good(t)
			tt.spoil(t, &d)
			cfg := testConfig(t)
			cfg.ListenClientURLs = []string{"https://127.0.0.1:0"}
			cfg.TLS = d.TLSConfig
			_, err := newServer(cfg, &fakeNode{}, nil)
			require.ErrorContains(t, err, tt.want)
		})
	}
}
