package snapshot

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// files writes a certificate of an authority for name, its key and the authority's own
// certificate, and returns where.
func files(t *testing.T, a *tlstest.Authority, name string) (cert, key, ca string) {
	t.Helper()
	dir := t.TempDir()
	cert, key, ca = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	certPEM, keyPEM := a.Issue(t, name)
	for path, content := range map[string][]byte{cert: certPEM, key: keyPEM, ca: a.PEM} {
		require.NoError(t, os.WriteFile(path, content, 0o600))
	}
	return cert, key, ca
}

// TestFromAServerWithTLS: an etcd that demands certificates, and users.
func TestFromAServerWithTLS(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), programWait)
	defer cancel()
	servers, clients, others := tlstest.NewAuthority(t, "servers"), tlstest.NewAuthority(t, "clients"),
		tlstest.NewAuthority(t, "others")
	serverCert, serverKey, serverCA := files(t, servers, "server")
	// The certificate's name does not authenticate a user: a client without password and token is unauthenticated.
	cert, key, clientCA := files(t, clients, "nobody")
	otherCert, otherKey, otherCA := files(t, others, "nobody")
	host, peer := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t)),
		fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
	address := "https://" + host
	harness.StartProcess(t, harness.Etcd(t), "--data-dir", t.TempDir(), "--log-level", "warn", "--bcrypt-cost", "4",
		"--listen-client-urls", address, "--advertise-client-urls", address,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer,
		"--cert-file", serverCert, "--key-file", serverKey, "--client-cert-auth", "--trusted-ca-file", clientCA)
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{address}, TLS: servers.ClientConfig(t, clients), Logger: zap.NewNop(), DialTimeout: programWait,
	})
	require.NoError(t, err)
	defer func() { require.NoError(t, c.Close()) }()
	give(t, ctx, c)
	was, err := c.Get(ctx, "", clientv3.WithFromKey())
	require.NoError(t, err)

	restore := func(from string, flags ...string) (datastore string, out harness.Output) {
		t.Helper()
		datastore = harness.SQLite.Datastore(t)
		return datastore, harness.Run(t, programWait, "", harness.Sqlbrain(t),
			append([]string{"restore", "--from", from, "--datastore", datastore, "--tmpdir", t.TempDir()}, flags...)...)
	}
	same := func(flags ...string) {
		t.Helper()
		datastore, out := restore(address, flags...)
		require.Zero(t, out.Code, "%v: %s", flags, out.Stderr)
		n := harness.NewNode(t, datastore)
		n.StartWithoutWaiting()
		cfg := clientv3.Config{}
		if st, err := c.AuthStatus(ctx); err != nil || st.Enabled {
			cfg.Username, cfg.Password = rootName, rootWord
		}
		got, err := awaitClient(t, n, cfg).Get(ctx, "", clientv3.WithFromKey())
		require.NoError(t, err)
		require.Equal(t, was.Kvs, got.Kvs)
		require.Equal(t, was.Header.Revision, got.Header.Revision)
		n.Stop()
	}
	refused := func(want, from string, flags ...string) {
		t.Helper()
		_, out := restore(from, flags...)
		require.NotZero(t, out.Code, "%v", flags)
		require.Contains(t, out.Stderr, want, "%v", flags)
		require.Contains(t, out.Stderr, "from "+from)
	}
	own := []string{"--cacert", serverCA, "--cert", cert, "--key", key}

	same(own...)
	same("--insecure-skip-tls-verify", "--cert", cert, "--key", key)
	refused("signed by unknown authority", address, "--cert", cert, "--key", key)
	refused("signed by unknown authority", address, "--cacert", otherCA, "--cert", cert, "--key", key)
	refused("certificate required", address, "--cacert", serverCA)
	refused("unknown certificate authority", address, "--cacert", serverCA, "--cert", otherCert, "--key", otherKey)
	refused("KeyFile and CertFile must both be present", address, "--cacert", serverCA, "--cert", cert)
	refused("private key does not match", address, "--cacert", serverCA, "--cert", cert, "--key", otherKey)
	refused("no such file", address, "--cacert", serverCA+".not", "--cert", cert, "--key", key)
	refused("has to begin with https", "http://"+host)

	protect(t, ctx, c)
	same(append(own, "--user", rootName+":"+rootWord)...)
	same(append(own, "--user", rootName, "--password", rootWord)...)
	refused("authentication failed", address, append(own, "--user", rootName+":wrong")...)
	refused("permission denied", address, append(own, "--user", "eve:word")...)
	refused("user name", address, own...)
}
