package e2e

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
)

// TestPlanesShareAStore runs two control planes with separate prefixes on one
// sqlbrain, as a host of control planes may do. They do not see each other's objects.
func TestPlanesShareAStore(t *testing.T) {
	programs.NeedsKubernetes(t)
	store := harness.StartNode(t, harness.SQLite)
	var planes []*controlplane.APIServer
	for i := range 2 {
		planes = append(planes, controlplane.StartAPIServer(t, controlplane.NewCredentials(t), controlplane.APIConfig{
			Store: []string{store.Endpoint()},
			Flags: []string{fmt.Sprintf("--etcd-prefix=/plane-%d", i)},
		}))
	}
	for i, p := range planes {
		_, err := p.Client().CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "whose"}, Data: map[string]string{"plane": fmt.Sprint(i)},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, planes[0].Client().CoreV1().ConfigMaps("default").Delete(t.Context(), "whose",
		metav1.DeleteOptions{}))
	_, err := planes[0].Client().CoreV1().ConfigMaps("default").Get(t.Context(), "whose", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	left, err := planes[1].Client().CoreV1().ConfigMaps("default").Get(t.Context(), "whose", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, "1", left.Data["plane"])
	for i, p := range planes {
		list, err := p.Client().CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		at, err := strconv.ParseInt(list.ResourceVersion, 10, 64)
		require.NoError(t, err)
		stored, err := store.Client().Get(t.Context(), fmt.Sprintf("/plane-%d/namespaces/", i), clientv3.WithPrefix(),
			clientv3.WithCountOnly(), clientv3.WithRev(at))
		require.NoError(t, err)
		require.EqualValues(t, len(list.Items), stored.Count)
	}
}
