package server

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/sqlbrain/sqlbrain/server/etcd"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
)

const loopbackTLS = "https://127.0.0.1:0"

// overTLS makes the client URL one of TLS with the files of d.
func overTLS(d tlstest.Dir) func(*Config) {
	return func(c *Config) { c.ListenClientURLs, c.TLS = []string{loopbackTLS}, d.Config }
}

func startTLS(t *testing.T, n *fakeNode, d tlstest.Dir) *Server {
	return startFake(t, n, newFakeStream(), overTLS(d))
}

// dialTLS returns a gRPC connection to s.
func dialTLS(t *testing.T, s *Server, c *tls.Config) *grpc.ClientConn {
	t.Helper()
	conn, err := grpc.NewClient(s.clients[0].Addr().String(), grpc.WithTransportCredentials(credentials.NewTLS(c)))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, conn.Close()) })
	return conn
}

// serverName makes a handshake with s and returns whose certificate it showed.
func serverName(t *testing.T, s *Server, c *tls.Config) (string, error) {
	conn, err := tls.Dial("tcp", s.clients[0].Addr().String(), c)
	if err != nil {
		return "", err
	}
	defer func() { require.NoError(t, conn.Close()) }()
	return conn.ConnectionState().PeerCertificates[0].Subject.CommonName, nil
}

// versionBody is what /version answers.
const versionBody = `{"etcdserver":"` + EtcdVersion + `","etcdcluster":"` + etcd.ClusterVersion + `","storage":"` +
	etcd.StorageVersion + `"}`

func TestTLSServesEverythingOnOnePort(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	s := startTLS(t, &fakeNode{}, d)

	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), TLS: ca.ClientConfig(t, nil), Logger: zap.NewNop()})
	require.NoError(t, err)
	_, err = c.Get(testContext(t), "k")
	require.NoError(t, err)
	require.NoError(t, c.Close())

	for proto, force := range map[string]bool{"HTTP/1.1": false, "HTTP/2.0": true} {
		tr := &http.Transport{TLSClientConfig: ca.ClientConfig(t, nil), ForceAttemptHTTP2: force}
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
	_, err = serverName(t, s, &tls.Config{RootCAs: tlstest.NewAuthority(t, "other").Pool()})
	require.Error(t, err)
}

func TestTLSFilesAreReadAgain(t *testing.T) {
	ca, d := tlstest.NewAuthority(t, "ca"), tlstest.NewDir(t)
	d.Write(t, ca, "first")
	s := startTLS(t, &fakeNode{}, d)
	client := ca.ClientConfig(t, nil)
	require.Equal(t, "first", must(serverName(t, s, client)))
	d.Write(t, ca, "second")
	require.Equal(t, "second", must(serverName(t, s, client)))

	tlstest.Replace(t, d.KeyFile, []byte("not a key"))
	require.Equal(t, "second", must(serverName(t, s, client)), "what cannot be read leaves the old one in use")
	require.NoError(t, os.Remove(d.CertFile))
	require.Equal(t, "second", must(serverName(t, s, client)))
	d.Write(t, ca, "third")
	require.Equal(t, "third", must(serverName(t, s, client)))
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// getOver makes a call over a new connection.
func getOver(t *testing.T, s *Server, c *tls.Config) error {
	_, err := pb.NewKVClient(dialTLS(t, s, c)).Range(testContext(t), &pb.RangeRequest{Key: key})
	return err
}

func TestClientCertificates(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	clients := tlstest.NewAuthority(t, "clients")
	d.RequireClients(t, clients)
	s := startTLS(t, &fakeNode{}, d)

	require.NoError(t, getOver(t, s, ca.ClientConfig(t, clients)))
	require.Error(t, getOver(t, s, ca.ClientConfig(t, nil)), "without a certificate")
	others := tlstest.NewAuthority(t, "others")
	require.Error(t, getOver(t, s, ca.ClientConfig(t, others)), "with a certificate of another authority")

	d.Trust(t, others)
	require.NoError(t, getOver(t, s, ca.ClientConfig(t, others)), "the authorities are read again too")
	require.Error(t, getOver(t, s, ca.ClientConfig(t, clients)))
}

func TestRevokedCertificates(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	clients := tlstest.NewAuthority(t, "clients")
	d.Trust(t, clients)
	d.Revoke(t, clients, 7)
	s := startTLS(t, &fakeNode{}, d)
	overHTTP := func() error {
		tr := &http.Transport{TLSClientConfig: ca.ClientConfig(t, clients)}
		defer tr.CloseIdleConnections()
		resp, err := (&http.Client{Transport: tr}).Get(s.ClientURLs()[0] + "/version")
		if err == nil {
			require.NoError(t, resp.Body.Close())
		}
		return err
	}
	require.NoError(t, getOver(t, s, ca.ClientConfig(t, clients)))
	require.NoError(t, overHTTP())
	d.Revoke(t, clients, 7, 2)
	require.Error(t, getOver(t, s, ca.ClientConfig(t, clients)), "the list is read again")
	require.Error(t, overHTTP())
	tlstest.Replace(t, d.CRLFile, []byte("no list"))
	require.Error(t, getOver(t, s, ca.ClientConfig(t, clients)), "what cannot be read leaves the old one in use")
	d.Revoke(t, clients)
	require.NoError(t, getOver(t, s, ca.ClientConfig(t, clients)))
}

func TestVersionsAndCiphers(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	speaks := func(d tlstest.Dir, version, suite uint16) error {
		t.Helper()
		c := ca.ClientConfig(t, nil)
		c.MinVersion, c.MaxVersion, c.CipherSuites = version, version, []uint16{suite}
		_, err := serverName(t, startTLS(t, &fakeNode{}, d), c)
		return err
	}
	const one, other = tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
	for _, weak := range tls.InsecureCipherSuites() {
		require.Error(t, speaks(d, tls.VersionTLS12, weak.ID), weak.Name)
	}
	require.Error(t, speaks(d, tls.VersionTLS11, one))
	require.NoError(t, speaks(d, tls.VersionTLS12, one))
	require.NoError(t, speaks(d, tls.VersionTLS12, other))
	d.CipherSuites = []uint16{one}
	require.NoError(t, speaks(d, tls.VersionTLS12, one))
	require.Error(t, speaks(d, tls.VersionTLS12, other))
	d.CipherSuites, d.MinVersion = nil, tls.VersionTLS13
	require.Error(t, speaks(d, tls.VersionTLS12, one))
	require.NoError(t, speaks(d, tls.VersionTLS13, one))
	d.MinVersion, d.MaxVersion = 0, tls.VersionTLS12
	require.NoError(t, speaks(d, tls.VersionTLS12, one))
	require.Error(t, speaks(d, tls.VersionTLS13, one))
}

func TestHandlersSeeTheClientCertificate(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	clients := tlstest.NewAuthority(t, "clients")
	d.Trust(t, clients)
	seen := make(chan *peer.Peer, 1)
	n := &fakeNode{onRange: func(ctx context.Context) {
		p, _ := peer.FromContext(ctx)
		seen <- p
	}}
	s := startTLS(t, n, d)
	require.NoError(t, getOver(t, s, ca.ClientConfig(t, clients)))
	info, ok := (<-seen).AuthInfo.(credentials.TLSInfo)
	require.True(t, ok)
	require.Equal(t, "client", info.State.VerifiedChains[0][0].Subject.CommonName)
}

func TestMismatchedTLSFilesAreRefused(t *testing.T) {
	ca := tlstest.NewAuthority(t, "ca")
	good := func(t *testing.T) tlstest.Dir {
		d := tlstest.NewDir(t)
		d.Write(t, ca, "server")
		d.Trust(t, ca)
		return d
	}
	tests := map[string]struct {
		spoil func(*testing.T, *tlstest.Dir)
		want  string
	}{
		"no key": {func(_ *testing.T, d *tlstest.Dir) { d.KeyFile = "" },
			"both a certificate file and a key file"},
		"no authority": {func(_ *testing.T, d *tlstest.Dir) { d.ClientCertAuth, d.TrustedCAFile = true, "" },
			"needs a trusted CA file"},
		"no such file": {func(_ *testing.T, d *tlstest.Dir) { d.CertFile += ".missing" }, "cert.pem.missing"},
		"not a certificate": {func(t *testing.T, d *tlstest.Dir) { tlstest.Replace(t, d.CertFile, []byte("x")) },
			"cert.pem"},
		"key of another": {func(t *testing.T, d *tlstest.Dir) {
			_,
				k := ca.Issue(t, "x")
			tlstest.Replace(t, d.KeyFile, k)
		}, "private key does not match"},
		"authority without PEM": {func(t *testing.T, d *tlstest.Dir) { tlstest.Replace(t, d.TrustedCAFile, []byte("x")) },
			"no certificate in"},
		"list without authority": {func(t *testing.T, d *tlstest.Dir) { d.Revoke(t, ca); d.TrustedCAFile = "" },
			"needs a trusted CA file"},
		"no revocation list": {func(t *testing.T,
			d *tlstest.Dir) {
			d.Revoke(t, ca)
			tlstest.Replace(t, d.CRLFile, []byte("x"))
		}, "no revocation list in"},
		"https without any file": {func(_ *testing.T, d *tlstest.Dir) { d.Config = tlsfiles.Config{} },
			"a certificate and a key are needed"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := good(t)
			tt.spoil(t, &d)
			requireRefused(t, tt.want, overTLS(d))
		})
	}
}
