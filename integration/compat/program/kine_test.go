package program

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// Every flag of kine is one of `sqlbrain kine`, with its variable.
func TestFlagsOfKineAreKnown(t *testing.T) {
	dir, err := harness.Download(t.Context(), filepath.Join("..", "..", "programs", "kine"), "github.com/k3s-io/kine")
	require.NoError(t, err)
	source, err := os.ReadFile(filepath.Join(dir, "pkg", "app", "app.go"))
	require.NoError(t, err)
	flags := regexp.MustCompile(`(?s)Name:\s+"([a-z0-9-]+)",.*?EnvVars:\s+\[\]string\{([^}]*)\}`).FindAllStringSubmatch(
		string(source), -1)
	require.Greater(t, len(flags), 35)
	help := harness.Run(t, time.Minute, "", harness.Sqlbrain(t), "kine", "--help")
	require.Zero(t, help.Code, help.Stderr)
	for _, m := range flags {
		require.Regexp(t, `(?m)^ +--`+m[1]+`( |$)`, help.Stdout)
		if strings.HasPrefix(m[2], `"KINE_`) {
			require.Equal(t, `"KINE_`+strings.ToUpper(strings.ReplaceAll(m[1], "-", "_"))+`"`, m[2])
		}
	}
}

// kamaji are two processes with the command line, the rights and the TLS files that Kamaji gives to kine.
type kamaji struct {
	t       *testing.T
	program string
	args    []string
}

// startKamaji starts a MySQL that demands client certificates.
func startKamaji(t *testing.T) kamaji {
	t.Helper()
	certs := enginetest.Directory(t)
	ca := tlstest.NewAuthority(t, "authority")
	cert, key := ca.Issue(t, "server")
	for name, content := range map[string][]byte{"ca.crt": ca.PEM, "server.crt": cert, "server.key": key} {
		// the directory is the server's alone
		require.NoError(t, os.WriteFile(filepath.Join(certs, name), content, 0o644))
	}
	require.NoError(t, enginetest.GiveToServers(certs))
	db := enginetest.MySQL.StartServer(t)
	u, err := url.Parse(db.URL())
	require.NoError(t, err)
	const user = "'tenant'@'%'"
	enginetest.Exec(t, db.URL(),
		"SET GLOBAL ssl_ca = '"+filepath.Join(certs, "ca.crt")+"'",
		"SET GLOBAL ssl_cert = '"+filepath.Join(certs, "server.crt")+"'",
		"SET GLOBAL ssl_key = '"+filepath.Join(certs, "server.key")+"'", "ALTER INSTANCE RELOAD TLS",
		"CREATE USER "+user+" IDENTIFIED BY '"+secret+"' REQUIRE X509",
		"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, INDEX ON `"+strings.TrimPrefix(u.Path, "/")+"`.* TO "+user)
	k := kamaji{t: t, program: filepath.Join(t.TempDir(), "kine"), args: []string{
		"--endpoint", "mysql://tenant:" + secret + "@tcp(" + u.Host + ")" + u.Path,
		"--ca-file", filepath.Join(certs, "ca.crt"), "--cert-file", filepath.Join(certs, "server.crt"),
		"--key-file", filepath.Join(certs, "server.key"),
		"--metrics-bind-address", "127.0.0.1:0", // the processes share a host here
	}}
	require.NoError(t, os.Symlink(harness.Sqlbrain(t), k.program))
	return k
}

// replica starts a process, and returns it and its endpoint.
func (k kamaji) replica() (*harness.Process, string) {
	k.t.Helper()
	endpoint := "unix://" + filepath.Join(enginetest.Directory(k.t), "kine.sock")
	p := harness.StartProcess(k.t, k.program, append(k.args, "--listen-address", endpoint)...)
	client := harness.ClientOf(k.t, endpoint)
	p.Await(k.t, func(ctx context.Context) error {
		_, err := client.Get(ctx, "health")
		return err
	})
	return p, endpoint
}

// etcdctl runs etcdctl, and returns what it prints.
func (k kamaji) etcdctl(endpoint string, args ...string) string {
	k.t.Helper()
	out := harness.Run(k.t, eventually.Deadline, "", harness.Etcdctl(k.t),
		append([]string{"--endpoints", endpoint, "--command-timeout=1m"}, args...)...)
	require.Zero(k.t, out.Code, out.Stderr)
	return strings.TrimSpace(out.Stdout)
}

// TestReplicasOfKamajiAreACluster: two processes share a database, serve writes alike, and each continues without the
// other.
func TestReplicasOfKamajiAreACluster(t *testing.T) {
	k := startKamaji(t)
	first, one := k.replica()
	_, two := k.replica()
	for _, endpoint := range []string{one, two} {
		require.Equal(t, "OK", k.etcdctl(endpoint, "put", "k", endpoint))
	}
	for _, endpoint := range []string{one, two} {
		require.Equal(t, two, k.etcdctl(endpoint, "get", "k", "--print-value-only"))
		require.Len(t, strings.Split(k.etcdctl(endpoint, "member", "list"), "\n"), 2)
	}
	require.Contains(t, k.etcdctl(one, "endpoint", "health"), "is healthy")

	first.Kill(t) // it leads, because it was the first
	require.Equal(t, "OK", k.etcdctl(two, "put", "k", "after"))
	again, three := k.replica()
	require.Equal(t, "after", k.etcdctl(three, "get", "k", "--print-value-only"))
	require.Equal(t, "OK", k.etcdctl(three, "put", "k", "again"))
	require.Equal(t, "again", k.etcdctl(two, "get", "k", "--print-value-only"))
	again.Stop(t)
}
