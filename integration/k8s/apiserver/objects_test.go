package apiserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/programs"
)

// eventTTL is how long events live in the API servers of these tests.
const eventTTL = 10 * time.Second

// TestAPI: the requests of Kubernetes' clients, each in a separate namespace, on
// one API server per store.
func TestAPI(t *testing.T) {
	programs.NeedsKubernetes(t)
	forEachStore(t, func(t *testing.T, st *store) {
		s := startServer(t, controlplane.NewCredentials(t), st, "--event-ttl="+eventTTL.String())
		for _, c := range []struct {
			name string
			test func(*testing.T, *server)
		}{
			{"objects are created, read, updated and deleted", testObjects},
			{"an update of an old version is a conflict", testConflicts},
			{"a collection is deleted by its labels", testDeleteCollection},
			{"a lease is taken by one at a time", testLease},
			{"an object may have a megabyte", testLargeObjects},
			{"pages of a list are of one version", testPages},
			{"lists answer the version asked for", testVersions},
			{"lists are consistent, from the cache", testConsistentLists},
			{"a watch shows every change once, in order", testWatch},
			{"a watch begins with the list if asked", testWatchList},
			{"events end", testEvents},
			{"custom resources are served in all versions", testCustomResources},
			{"the store is found healthy", testHealth},
			{"kubectl applies, shows, waits and deletes", testKubectl},
		} {
			t.Run(c.name, func(t *testing.T) { c.test(t, s) })
		}
		t.Run("range streams are used", func(t *testing.T) { testRangeStreams(t, s, st) })
		t.Run("the cache is what the store has", func(t *testing.T) { testCacheChecks(t, s) })
		require.True(t, s.Process().Running(), "the API server has ended")
	})
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func testObjects(t *testing.T, s *server) {
	ctx := t.Context()
	maps := s.CoreV1().ConfigMaps(s.namespace(t))
	made, err := maps.Create(ctx, configMap("a", map[string]string{"k": "v"}), metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = maps.Create(ctx, configMap("a", nil), metav1.CreateOptions{})
	require.True(t, apierrors.IsAlreadyExists(err), "%v", err)

	got, err := maps.Get(ctx, "a", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, made, got)
	got.Data["k"] = "w"
	updated, err := maps.Update(ctx, got, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Greater(t, revision(t, updated), revision(t, made))
	same, err := maps.Update(ctx, updated, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Equal(t, updated.ResourceVersion, same.ResourceVersion, "an update that changes nothing writes nothing")

	uid, other := made.UID, types.UID("another")
	err = maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &other}})
	require.True(t, apierrors.IsConflict(err), "%v", err)
	require.NoError(t, maps.Delete(ctx, "a", metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
	_, err = maps.Get(ctx, "a", metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
	require.True(t, apierrors.IsNotFound(maps.Delete(ctx, "a", metav1.DeleteOptions{})))
}

// revision is the object's resource version.
func revision(t testing.TB, o metav1.Object) int64 {
	t.Helper()
	n, err := strconv.ParseInt(o.GetResourceVersion(), 10, 64)
	require.NoError(t, err)
	return n
}

func testConflicts(t *testing.T, s *server) {
	ctx := t.Context()
	maps := s.CoreV1().ConfigMaps(s.namespace(t))
	_, err := maps.Create(ctx, configMap("counter", map[string]string{"n": "0"}), metav1.CreateOptions{})
	require.NoError(t, err)
	old, err := maps.Get(ctx, "counter", metav1.GetOptions{})
	require.NoError(t, err)

	const writers, each = 8, 20
	var group sync.WaitGroup
	for range writers {
		group.Go(func() {
			for range each {
				err := increment(ctx, maps)
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
	end, err := maps.Get(ctx, "counter", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(writers*each), end.Data["n"], "no increment is lost")

	old.Data["n"] = "-1"
	_, err = maps.Update(ctx, old, metav1.UpdateOptions{})
	require.True(t, apierrors.IsConflict(err), "%v", err)
}

// increment counts up by one. It retries until no other write came in between.
func increment(ctx context.Context, maps typedcorev1.ConfigMapInterface) error {
	for {
		c, err := maps.Get(ctx, "counter", metav1.GetOptions{})
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(c.Data["n"])
		if err != nil {
			return err
		}
		c.Data["n"] = strconv.Itoa(n + 1)
		if _, err = maps.Update(ctx, c, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			return err
		}
	}
}

func testDeleteCollection(t *testing.T, s *server) {
	ctx := t.Context()
	maps := s.CoreV1().ConfigMaps(s.namespace(t))
	const all = 60
	for i := range all {
		c := configMap(fmt.Sprintf("c%02d", i), nil)
		c.Labels = map[string]string{"third": strconv.Itoa(i % 3)}
		_, err := maps.Create(ctx, c, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	require.NoError(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "third=1"}))
	rest, err := maps.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, rest.Items, all-all/3)
	for _, c := range rest.Items {
		require.NotEqual(t, "1", c.Labels["third"])
	}
	require.NoError(t, maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	rest, err = maps.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, rest.Items)
}

// testLease has eight holders at once pass a lease around, each only taking it when
// no other holds it, as leader election does.
func testLease(t *testing.T, s *server) {
	ctx := within(t, 2*time.Minute)
	leases := s.CoordinationV1().Leases(s.namespace(t))
	_, err := leases.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "l"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	const holders, turns = 8, 5
	var inside sync.Mutex
	var group sync.WaitGroup
	for i := range holders {
		me := fmt.Sprintf("holder%d", i)
		group.Go(func() {
			for turn := 0; turn < turns; {
				l, err := leases.Get(ctx, "l", metav1.GetOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				if l.Spec.HolderIdentity != nil && *l.Spec.HolderIdentity != "" {
					continue
				}
				l.Spec.HolderIdentity = &me
				l, err = leases.Update(ctx, l, metav1.UpdateOptions{})
				if apierrors.IsConflict(err) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if !inside.TryLock() {
					t.Error("two hold the lease")
					return
				}
				nobody := ""
				l.Spec.HolderIdentity = &nobody
				inside.Unlock()
				if _, err = leases.Update(ctx, l, metav1.UpdateOptions{}); err != nil {
					t.Errorf("the holder's update: %v", err)
					return
				}
				turn++
			}
		})
	}
	group.Wait()
}

func testLargeObjects(t *testing.T, s *server) {
	ctx := t.Context()
	maps := s.CoreV1().ConfigMaps(s.namespace(t))
	const most = 1 << 20 // of a ConfigMap's data
	big := make([]byte, most)
	_, err := rand.Read(big)
	require.NoError(t, err)
	large := func(name string, data []byte) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, BinaryData: map[string][]byte{"d": data}}
	}
	_, err = maps.Create(ctx, large("over", append([]byte{0}, big...)), metav1.CreateOptions{})
	require.True(t, apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err), "%v", err)
	for i := range 4 {
		big[0] = byte(i)
		_, err = maps.Create(ctx, large(fmt.Sprintf("big%d", i), big), metav1.CreateOptions{})
		require.NoError(t, err)
	}
	list, err := maps.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	require.Len(t, list.Items, 4)
	for i, c := range list.Items {
		big[0] = byte(i)
		require.True(t, bytes.Equal(big, c.BinaryData["d"]), c.Name)
	}

	// More than a request of the store may have: refused, and no half of it there.
	tooLarge, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{"a": strings.Repeat("a", 200<<10)}}})
	require.NoError(t, err)
	_, err = maps.Patch(ctx, "big0", types.MergePatchType, tooLarge, metav1.PatchOptions{})
	require.NoError(t, err, "1.2 MiB are below the limit of a request")
	secrets := s.CoreV1().Secrets(s.namespace(t))
	_, err = secrets.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s"},
		Data: map[string][]byte{"d": big}}, metav1.CreateOptions{})
	require.NoError(t, err)
}
