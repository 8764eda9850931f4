package apiserver

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
)

const moveWait = 5 * time.Minute

// TestMove: the store of an API server that runs is moved from etcd to sqlbrain, and back,
// by snapshots. The API server finds every object at its version, old lists go on where
// they were, and its watchers see what is written after the moves and nothing twice.
func TestMove(t *testing.T) {
	programs.NeedsKubernetes(t)
	if harness.TargetIsEtcd() {
		t.Skip("a move from etcd to sqlbrain and back has both")
	}
	for _, e := range harness.Engines() {
		t.Run(e.Name, func(t *testing.T) { testMove(t, e) })
	}
}

func testMove(t *testing.T, e harness.Engine) {
	ctx := within(t, moveWait)
	from := harness.StartEtcd(t)
	proxy, endpoint := harness.StartProxy(t, from.Endpoint())
	s := startServer(t, controlplane.NewCredentials(t), &store{endpoints: []string{endpoint}})
	ns := s.namespace(t)
	maps := s.CoreV1().ConfigMaps(ns)
	const all = 20
	fill(t, s, ns, all)
	changed, err := maps.Get(ctx, "c003", metav1.GetOptions{})
	require.NoError(t, err)
	page, err := maps.List(ctx, metav1.ListOptions{Limit: 5})
	require.NoError(t, err)
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: page.ResourceVersion})
	require.NoError(t, err)
	defer w.Stop()

	for i, to := range []func(file string) *harness.Node{
		func(file string) *harness.Node { return harness.Restored(t, e.Datastore(t), file) },
		func(file string) *harness.Node { return harness.RestoredEtcd(t, file) },
	} {
		was, err := maps.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		proxy.Refuse()
		file := filepath.Join(t.TempDir(), "snapshot.db")
		harness.Succeed(t, harness.Etcdctl(t), "--endpoints", from.Endpoint(), "snapshot", "save", file)
		from.Stop()
		from = to(file)
		from.Start()
		proxy.Lead(from.Host())
		proxy.Heal()

		require.NoError(t, await(ctx, func() error {
			_, err := s.Get(ctx, "/readyz")
			return err
		}))
		is, err := maps.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, was.Items, is.Items)

		// An object that was read before the move may be changed after it, once.
		changed.Data = map[string]string{"moved": fmt.Sprint(i)}
		stale := changed.DeepCopy()
		changed, err = maps.Update(ctx, changed, metav1.UpdateOptions{})
		require.NoError(t, err)
		_, err = maps.Update(ctx, stale, metav1.UpdateOptions{})
		require.True(t, apierrors.IsConflict(err), "%v", err)
		gone := fmt.Sprintf("c%03d", 10+i)
		require.NoError(t, maps.Delete(ctx, gone, metav1.DeleteOptions{}))
		requireEvent(t, w, apiwatch.Modified, changed.Name, changed.ResourceVersion)
		requireEvent(t, w, apiwatch.Deleted, gone, "")

		// A list that began before both moves continues at its revision.
		next, err := maps.List(ctx, metav1.ListOptions{Limit: 5, Continue: page.Continue})
		require.NoError(t, err)
		require.Equal(t, page.ResourceVersion, next.ResourceVersion)
		rest, err := maps.List(ctx, metav1.ListOptions{Continue: next.Continue})
		require.NoError(t, err)
		require.Len(t, append(next.Items, rest.Items...), all-5)
	}
	require.Empty(t, w.ResultChan())
}

func requireEvent(t *testing.T, w apiwatch.Interface, kind apiwatch.EventType, name, version string) {
	t.Helper()
	select {
	case e, open := <-w.ResultChan():
		require.True(t, open, "the watch ended")
		require.Equal(t, kind, e.Type, "%v", e.Object)
		m := e.Object.(*corev1.ConfigMap)
		require.Equal(t, name, m.Name)
		if version != "" {
			require.Equal(t, version, m.ResourceVersion)
		}
	case <-within(t, time.Minute).Done():
		t.Fatalf("no %s event of %s", kind, name)
	}
}
