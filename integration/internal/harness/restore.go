package harness

import (
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// programWait bounds a program that ends by itself.
const programWait = 5 * time.Minute

// Succeed runs a program that must succeed, and returns what it prints.
func Succeed(t testing.TB, program string, args ...string) string {
	t.Helper()
	out := Run(t, programWait, "", program, args...)
	require.Zero(t, out.Code, "%v: %s", args, out.Stderr)
	return out.Stdout
}

// NewNode returns a sqlbrain on a datastore, which is not started yet.
func NewNode(t testing.TB, datastore string, extra ...string) *Node {
	return &Node{t: t, datastore: datastore, extra: extra}
}

// Restored returns a sqlbrain on a database that was filled from a snapshot, which is not started yet.
func Restored(t testing.TB, datastore, snapshot string) *Node {
	t.Helper()
	Succeed(t, Sqlbrain(t), "restore", snapshot, "--datastore", datastore)
	return NewNode(t, datastore)
}

// RestoredEtcd returns an etcd that etcdutl made of a snapshot, which is not started yet.
func RestoredEtcd(t testing.TB, snapshot string) *Node {
	t.Helper()
	dir, peer := filepath.Join(t.TempDir(), "etcd"), fmt.Sprintf("http://127.0.0.1:%d", enginetest.FreePort(t))
	Succeed(t, Etcdutl(t), "snapshot", "restore", snapshot, "--data-dir", dir, "--name", "default",
		"--initial-cluster", "default="+peer, "--initial-advertise-peer-urls", peer)
	return NewMember(t, true, dir, Member{Name: "default", ClientPort: enginetest.FreePort(t), PeerURL: peer,
		AdvertisedPeerURL: peer, InitialCluster: "default=" + peer})
}

// ForEachKineEndpoint runs a test on SQLite and on every database server, with the endpoint of an empty database as
// kine takes it.
func ForEachKineEndpoint(t *testing.T, test func(t *testing.T, endpoint string)) {
	t.Run("sqlite", func(t *testing.T) { test(t, "sqlite://"+filepath.Join(t.TempDir(), "state.db")) })
	ForEachServer(t, func(t *testing.T, p enginetest.Product) {
		u, err := url.Parse(p.Database(t))
		require.NoError(t, err)
		password, _ := u.User.Password()
		test(t, fmt.Sprintf("mysql://%s:%s@tcp(%s)%s", u.User.Username(), password, u.Host, u.Path))
	})
}
