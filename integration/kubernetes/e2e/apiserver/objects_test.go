package apiserver

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
)

// eventTTL is how long events live in the API servers of these tests.
const eventTTL = 10 * time.Second

// TestAPI: what an API server asks of its store beyond objects, whose lists, watches and conflicts the suites of
// Kubernetes test (../upstream and ../..).
func TestAPI(t *testing.T) {
	programs.NeedsKubernetes(t)
	forEachStore(t, func(t *testing.T, st *store) {
		s := startServer(t, controlplane.NewCredentials(t), st, "--event-ttl="+eventTTL.String())
		t.Run("events end", func(t *testing.T) { testEvents(t, s) })
		t.Run("the store is found healthy", func(t *testing.T) { testHealth(t, s) })
		t.Run("the cache is what the store has", func(t *testing.T) { testCacheChecks(t, s) })
		require.True(t, s.Process().Running(), "the API server has ended")
	})
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// revision is the object's resource version.
func revision(t testing.TB, o metav1.Object) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	require.NoError(t, err)
	return n
}

// fill creates n ConfigMaps, c000 and so on.
func fill(t *testing.T, s *server, ns string, n int) {
	t.Helper()
	for i := range n {
		_, err := s.CoreV1().ConfigMaps(ns).Create(t.Context(),
			configMap(fmt.Sprintf("c%03d", i), map[string]string{"n": "0"}), metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func listRevision(t testing.TB, l metav1.ListInterface) int64 {
	t.Helper()
	n, err := strconv.ParseInt(l.GetResourceVersion(), 10, 64)
	require.NoError(t, err)
	return n
}
