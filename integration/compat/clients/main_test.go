package clients

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.TestMain(m) }

// wait bounds what a test waits for; nothing takes so long unless it hangs.
const wait = 5 * time.Minute

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	t.Cleanup(cancel)
	return ctx
}

// start starts a server on an empty SQLite database.
func start(t *testing.T) *harness.Node {
	t.Helper()
	return harness.StartNode(t, harness.SQLite)
}

// newSession returns a session of a separate client. Closing it revokes its
// lease, unless the test has ended the session already.
func newSession(t *testing.T, n *harness.Node, ttl int) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(n.Client(), concurrency.WithTTL(ttl))
	require.NoError(t, err)
	t.Cleanup(func() {
		if s.Ctx().Err() == nil {
			require.NoError(t, s.Close())
		}
	})
	return s
}

// contents returns the current keys with a prefix, and their values.
func contents(t *testing.T, kv clientv3.KV, prefix string) map[string]string {
	t.Helper()
	r, err := kv.Get(bounded(t), prefix, clientv3.WithPrefix())
	require.NoError(t, err)
	found := map[string]string{}
	for _, kv := range r.Kvs {
		found[string(kv.Key)] = string(kv.Value)
	}
	return found
}
