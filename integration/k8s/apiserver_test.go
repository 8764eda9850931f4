package k8s

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/programs"
)

// An API server keeps an object across its own restart, and stops in order.
func TestAPIServer(t *testing.T) {
	programs.NeedsKubernetes(t)
	harness.ForEachEngine(t, func(t *testing.T, e harness.Engine) {
		store := harness.StartNode(t, e)
		api := controlplane.StartAPIServer(t, controlplane.NewCredentials(t),
			controlplane.APIConfig{Store: []string{store.Endpoint()}})
		maps := api.Client().CoreV1().ConfigMaps("default")
		made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "greeting"},
			Data: map[string]string{"text": "hello"}}, metav1.CreateOptions{})
		require.NoError(t, err)

		api.Stop()
		api.Start()
		got, err := maps.Get(t.Context(), "greeting", metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, made, got)
		stored, err := store.Client().Get(t.Context(), "/registry/configmaps/default/greeting")
		require.NoError(t, err)
		require.Len(t, stored.Kvs, 1)
		api.Stop()
	})
}
