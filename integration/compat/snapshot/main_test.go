package snapshot

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.TestMain(m) }

const (
	programWait = 5 * time.Minute
	rootName    = "root"
	rootWord    = "secret"
)

// asRoot returns a client of the node that has authenticated as root, once the node
// answers.
func asRoot(t testing.TB, n *harness.Node) *clientv3.Client {
	t.Helper()
	return awaitClient(t, n, clientv3.Config{Username: rootName, Password: rootWord})
}

func awaitClient(t testing.TB, n *harness.Node, cfg clientv3.Config) *clientv3.Client {
	t.Helper()
	cfg.Endpoints, cfg.Logger, cfg.DialTimeout = []string{n.Endpoint()}, zap.NewNop(), 20*time.Second
	var c *clientv3.Client
	n.Process().Await(t, func(ctx context.Context) (err error) {
		if c, err = clientv3.New(cfg); err != nil {
			return err
		}
		if _, err = c.Get(ctx, "x"); err != nil { // which every user of these tests may read
			_ = c.Close()
		}
		return err
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// save has etcdctl save a snapshot, and etcdutl check it, and returns the file.
func save(t testing.TB, n *harness.Node, flags ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot.db")
	harness.Succeed(t, harness.Etcdctl(t), n.EtcdctlArgs(append([]string{"snapshot", "save", path}, flags...)...)...)
	harness.Succeed(t, harness.Etcdutl(t), "snapshot", "status", path)
	return path
}

var rootFlags = []string{"--user", rootName + ":" + rootWord}

// restored starts sqlbrain on a database that was filled from the file.
func restored(t testing.TB, datastore, path string) *harness.Node {
	t.Helper()
	n := harness.Restored(t, datastore, path)
	n.StartWithoutWaiting()
	return n
}

// restoredEtcd starts an etcd that etcdutl made of the file.
func restoredEtcd(t testing.TB, path string) *harness.Node {
	t.Helper()
	n := harness.RestoredEtcd(t, path)
	n.StartWithoutWaiting()
	return n
}
