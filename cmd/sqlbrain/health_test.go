package main

import (
	"net"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
)

func TestHealthOfARunningServer(t *testing.T) {
	n := startNode(t, "--datastore", sqliteURL(t))
	a := succeed(t, "health", "--listen-client-urls", n.endpoint)
	require.Contains(t, a.stdout, n.endpoint+" is healthy, took ")
	require.Empty(t, a.stderr)

	// A probe has the server's environment, and its address need not be one to dial.
	_, port, err := net.SplitHostPort(n.endpoint[len("http://"):])
	require.NoError(t, err)
	a = executeEnv(t, []string{"SQLBRAIN_LISTEN_CLIENT_URLS=http://0.0.0.0:" + port, "HTTP_PROXY=http://127.0.0.1:1"},
		"health")
	require.Zero(t, a.code, a.stderr)

	require.Zero(t, n.stop())
	execute(t, "health", "--listen-client-urls", n.endpoint).requireRefused(t, n.endpoint, "is not healthy", "refused")
}

func TestHealthAsksEveryURL(t *testing.T) {
	socket := "unix://" + filepath.Join(t.TempDir(), "s")
	startNode(t, "--datastore", sqliteURL(t), "--listen-peer-urls=", "--listen-client-urls="+socket)
	succeed(t, "health", "--listen-client-urls="+socket)
	gone := "unix://" + filepath.Join(t.TempDir(), "gone")
	execute(t, "health", "--listen-client-urls="+socket+","+gone).requireRefused(t, gone, "is not healthy")
}

func TestHealthOverTLS(t *testing.T) {
	authority, d := tlstest.NewAuthority(t, "authority"), tlstest.NewDir(t)
	d.Write(t, authority, "server")
	d.Trust(t, authority)
	files := []string{"--cert-file=" + d.CertFile, "--key-file=" + d.KeyFile, "--trusted-ca-file=" + d.TrustedCAFile,
		"--client-cert-auth"}
	n := startNode(t, append(files, "--datastore", sqliteURL(t), "--listen-client-urls=https://127.0.0.1:0",
		"--listen-peer-urls=")...)

	// The certificate is for 127.0.0.1, which health does not ask for.
	_, port, err := net.SplitHostPort(n.endpoint[len("https://"):])
	require.NoError(t, err)
	ask := func(files []string) answer {
		return execute(t, append([]string{"health", "--listen-client-urls=https://0.0.0.0:" + port}, files...)...)
	}
	a := ask(files)
	require.Zero(t, a.code, a.stderr)

	other := tlstest.NewDir(t)
	other.Write(t, authority, "server") // of the same authority and name
	ask([]string{"--cert-file=" + other.CertFile, "--key-file=" + other.KeyFile}).
		requireRefused(t, "is not healthy", "another certificate than", other.CertFile)
	execute(t, "health", "--listen-client-urls=http://127.0.0.1:"+port).requireRefused(t, "is not healthy")
}

// TestHealthCallsTheServerByANameItKnows: a server without TLS refuses other names than those of --host-whitelist.
func TestHealthCallsTheServerByANameItKnows(t *testing.T) {
	n := startNode(t, "--datastore", sqliteURL(t), "--host-whitelist=etcd.example,::1")
	for _, names := range []string{"etcd.example", "::1", "other.example,*"} {
		environ := []string{"SQLBRAIN_LISTEN_CLIENT_URLS=" + n.endpoint, "SQLBRAIN_HOST_WHITELIST=" + names}
		a := executeEnv(t, environ, "health")
		if names == "other.example,*" {
			a.requireRefused(t, "is not healthy", "421")
			continue
		}
		require.Zero(t, a.code, a.stderr)
		succeed(t, "health", "--listen-client-urls", n.endpoint, "--host-whitelist", names)
	}
}

func TestHealthIsRefused(t *testing.T) {
	execute(t, "health", "--listen-client-urls=http://127.0.0.1:0").requireRefused(t, "name it with --listen-client-urls")
	execute(t, "health", "--listen-client-urls=https://127.0.0.1:1").requireRefused(t, "--cert-file")
	execute(t, "health", "now").requireRefused(t, `unknown command "now"`)
}
