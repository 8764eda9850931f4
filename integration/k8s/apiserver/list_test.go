package apiserver

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// fill creates n ConfigMaps, c000 and so on.
func fill(t *testing.T, s *server, ns string, n int) {
	t.Helper()
	for i := range n {
		_, err := s.CoreV1().ConfigMaps(ns).Create(t.Context(),
			configMap(fmt.Sprintf("c%03d", i), map[string]string{"n": "0"}), metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

// testPages lists in pages while the collection changes: the pages are of the
// version of the first, whether the API server's cache answers or the store.
func testPages(t *testing.T, s *server) {
	ctx := t.Context()
	ns := s.namespace(t)
	maps := s.CoreV1().ConfigMaps(ns)
	const all, limit = 47, 10
	fill(t, s, ns, all)

	for _, selector := range []string{"", "metadata.name!=c003"} {
		want := all
		if selector != "" {
			want--
		}
		options := metav1.ListOptions{Limit: limit, FieldSelector: selector}
		var names []string
		var version string
		for page := 0; ; page++ {
			list, err := maps.List(ctx, options)
			require.NoError(t, err)
			for _, c := range list.Items {
				names = append(names, c.Name)
			}
			if page == 0 {
				version = list.ResourceVersion
				// After the version: not to be seen on later pages.
				_, err = maps.Create(ctx, configMap("c9-new", nil), metav1.CreateOptions{})
				require.NoError(t, err)
				require.NoError(t, maps.Delete(ctx, "c030", metav1.DeleteOptions{}))
			}
			require.Equal(t, version, list.ResourceVersion, "page %d", page)
			if list.Continue == "" {
				require.Nil(t, list.RemainingItemCount)
				break
			}
			require.Len(t, list.Items, limit)
			if selector == "" {
				require.NotNil(t, list.RemainingItemCount)
				require.EqualValues(t, all-len(names), *list.RemainingItemCount)
			}
			options.Continue = list.Continue
		}
		require.Len(t, names, want)
		require.Contains(t, names, "c030")
		require.NotContains(t, names, "c9-new")
		require.IsIncreasing(t, names)
		// As it was, for the next round.
		require.NoError(t, maps.Delete(ctx, "c9-new", metav1.DeleteOptions{}))
		_, err := maps.Create(ctx, configMap("c030", nil), metav1.CreateOptions{})
		require.NoError(t, err)
	}
}

func testVersions(t *testing.T, s *server) {
	ctx := t.Context()
	maps := s.CoreV1().ConfigMaps(s.namespace(t))
	made, err := maps.Create(ctx, configMap("a", map[string]string{"n": "0"}), metav1.CreateOptions{})
	require.NoError(t, err)
	versions := []*corev1.ConfigMap{made}
	for i := range 5 {
		c := versions[i].DeepCopy()
		c.Data["n"] = strconv.Itoa(i + 1)
		c, err = maps.Update(ctx, c, metav1.UpdateOptions{})
		require.NoError(t, err)
		versions = append(versions, c)
	}
	require.NoError(t, maps.Delete(ctx, "a", metav1.DeleteOptions{}))
	for _, v := range versions {
		list, err := maps.List(ctx, metav1.ListOptions{ResourceVersion: v.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		require.NoError(t, err)
		require.Equal(t, v.ResourceVersion, list.ResourceVersion)
		require.Len(t, list.Items, 1)
		require.Equal(t, v.Data, list.Items[0].Data)

		list, err = maps.List(ctx, metav1.ListOptions{ResourceVersion: v.ResourceVersion,
			ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan})
		require.NoError(t, err)
		require.GreaterOrEqual(t, listRevision(t, list), revision(t, v))
	}
	_, err = maps.List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	require.NoError(t, err)
	// From the future: the API server waits a little, and then says so.
	_, err = maps.List(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(revision(t, made)+1_000_000, 10)})
	require.True(t, apierrors.IsTimeout(err) || apierrors.IsInvalid(err), "%v", err)
}

func listRevision(t testing.TB, l metav1.ListInterface) int64 {
	t.Helper()
	n, err := strconv.ParseInt(l.GetResourceVersion(), 10, 64)
	require.NoError(t, err)
	return n
}

// testConsistentLists: a list without a version shows every write that was
// acknowledged before. The API server answers it from its cache after it has asked
// the store for the newest revision, and for progress of its watch.
func testConsistentLists(t *testing.T, s *server) {
	const name = "apiserver_watch_cache_consistent_read_total"
	fromCache, fromStore := s.metric(name, `fallback="false"`, `success="true"`), s.metric(name, `fallback="true"`)
	ns := s.namespace(t)
	maps := s.CoreV1().ConfigMaps(ns)
	const writers, each = 4, 25
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			for i := range each {
				c, err := maps.Create(t.Context(), configMap(fmt.Sprintf("w%d-%02d", w, i), nil), metav1.CreateOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				list, err := maps.List(t.Context(), metav1.ListOptions{})
				if err != nil {
					t.Error(err)
					return
				}
				seen := false
				for _, l := range list.Items {
					seen = seen || l.UID == c.UID
				}
				if !seen || listRevision(t, list) < revision(t, c) {
					t.Errorf("%s, made at %s, is not in a list at %s", c.Name, c.ResourceVersion, list.ResourceVersion)
				}
			}
		})
	}
	group.Wait()
	require.GreaterOrEqual(t, s.metric(name, `fallback="false"`, `success="true"`)-fromCache, float64(writers*each))
	t.Logf("lists answered by the store instead: %v", s.metric(name, `fallback="true"`)-fromStore)
}

// testWatch: a watch from the version of a list shows every later change, once,
// in order. Another watch from a version in the middle shows the rest.
func testWatch(t *testing.T, s *server) {
	ctx := within(t, time.Minute)
	ns := s.namespace(t)
	maps := s.CoreV1().ConfigMaps(ns)
	list, err := maps.List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	require.NoError(t, err)
	defer w.Stop()

	const objects = 30
	var want []string
	for i := range objects {
		name := fmt.Sprintf("c%d", i)
		c, err := maps.Create(ctx, configMap(name, map[string]string{"n": "0"}), metav1.CreateOptions{})
		require.NoError(t, err)
		want = append(want, "ADDED "+name+" "+c.ResourceVersion)
		c.Data["n"] = "1"
		c, err = maps.Update(ctx, c, metav1.UpdateOptions{})
		require.NoError(t, err)
		want = append(want, "MODIFIED "+name+" "+c.ResourceVersion)
		if i%2 == 0 {
			require.NoError(t, maps.Delete(ctx, name, metav1.DeleteOptions{}))
			want = append(want, "DELETED "+name)
		}
	}
	first := collect(t, w, len(want))
	for i := range want {
		// The client that deletes does not receive the deletion's own version.
		require.Equal(t, want[i], first[i].text[:len(want[i])])
		if i > 0 {
			require.Greater(t, first[i].revision, first[i-1].revision)
		}
	}
	const middle = objects
	again, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: strconv.FormatInt(first[middle].revision, 10)})
	require.NoError(t, err)
	defer again.Stop()
	require.Equal(t, first[middle+1:], collect(t, again, len(want)-middle-1))
}

type told struct {
	text     string
	revision int64
}

// collect returns the next n events.
func collect(t *testing.T, w watch.Interface, n int) (events []told) {
	t.Helper()
	for len(events) < n {
		e, open := <-w.ResultChan()
		require.True(t, open, "the watch ended after %d of %d events", len(events), n)
		c, ok := e.Object.(*corev1.ConfigMap)
		require.True(t, ok, "%v", e)
		events = append(events, told{fmt.Sprintf("%s %s %s", e.Type, c.Name, c.ResourceVersion), revision(t, c)})
	}
	return events
}

// testWatchList: with sendInitialEvents a watch begins with the existing objects, marks
// where they end, and continues.
func testWatchList(t *testing.T, s *server) {
	ctx := within(t, time.Minute)
	ns := s.namespace(t)
	const objects = 20
	fill(t, s, ns, objects)
	yes := true
	w, err := s.CoreV1().ConfigMaps(ns).Watch(ctx, metav1.ListOptions{
		SendInitialEvents: &yes, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan, AllowWatchBookmarks: true,
	})
	require.NoError(t, err)
	defer w.Stop()
	for i, e := range collect(t, w, objects) {
		require.Contains(t, e.text, fmt.Sprintf("ADDED c%03d ", i))
	}
	e := <-w.ResultChan()
	require.Equal(t, watch.Bookmark, e.Type, "%v", e)
	mark := e.Object.(*corev1.ConfigMap)
	require.Equal(t, "true", mark.Annotations[metav1.InitialEventsAnnotationKey])
	c, err := s.CoreV1().ConfigMaps(ns).Create(ctx, configMap("later", nil), metav1.CreateOptions{})
	require.NoError(t, err)
	require.Greater(t, revision(t, c), revision(t, mark))
	require.Equal(t, []told{{"ADDED later " + c.ResourceVersion, revision(t, c)}}, collect(t, w, 1))
}

// testRangeStreams: API servers from 1.37 on list by RangeStream.
func testRangeStreams(t *testing.T, s *server, st *store) {
	v, err := s.Discovery().ServerVersion()
	require.NoError(t, err)
	if minor, err := strconv.Atoi(v.Minor); err != nil || minor < 37 {
		t.Skipf("kube-apiserver %s does not use them", v.GitVersion)
	}
	if harness.TargetIsEtcd() {
		t.Skip("about sqlbrain's metrics; the target is etcd")
	}
	var started, failed float64
	for _, endpoint := range st.endpoints {
		response, err := http.Get(endpoint + "/metrics")
		require.NoError(t, err)
		body, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		started += sumSamples(t, body, "grpc_server_handled_total", `grpc_method="RangeStream"`)
		failed += sumSamples(t, body, "grpc_server_handled_total", `grpc_method="RangeStream"`, `grpc_code="Unimplemented"`)
	}
	require.Positive(t, started)
	require.Zero(t, failed)
}
