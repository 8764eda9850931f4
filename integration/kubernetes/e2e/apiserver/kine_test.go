package apiserver

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// TestInKinesPlace: an API server that runs goes on when sqlbrain takes the place of its kine, on kine's own table, and
// again when kine gets the table back with what was written since. It finds every object at its version, and lists each
// resource at most once more.
func TestInKinesPlace(t *testing.T) {
	programs.NeedsKubernetes(t)
	if harness.TargetIsEtcd() {
		t.Skip("etcd does not read kine's table")
	}
	harness.ForEachKineEndpoint(t, testInKinesPlace)
}

func testInKinesPlace(t *testing.T, endpoint string) {
	address := fmt.Sprintf("127.0.0.1:%d", enginetest.FreePort(t))
	flags := []string{"--endpoint", endpoint, "--listen-address", address, "--metrics-bind-address", "0"}
	st := &store{endpoints: []string{"http://" + address}}
	client := st.client(t)
	start := func(program string, args ...string) *harness.Process {
		p := harness.StartProcess(t, program, append(args, flags...)...)
		p.Await(t, func(ctx context.Context) error {
			_, err := client.Get(ctx, "/registry/health")
			return err
		})
		return p
	}
	process := start(harness.Kine(t))
	s := startServer(t, controlplane.NewCredentials(t), st)
	ctx := within(t, moveWait)
	ns := s.namespace(t)
	maps := s.CoreV1().ConfigMaps(ns)
	fill(t, s, ns, 20)
	changed, err := maps.Get(ctx, "c003", metav1.GetOptions{})
	require.NoError(t, err)

	for i, next := range []func() *harness.Process{
		func() *harness.Process { return start(harness.Sqlbrain(t), "kine") },
		func() *harness.Process {
			harness.Succeed(t, harness.Sqlbrain(t), "kine", "--endpoint", endpoint, "--revert", "--keep-writes")
			return start(harness.Kine(t))
		},
	} {
		was, err := maps.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		before := s.listsFromStore(t)
		process.Stop(t)
		process = next()

		// A change that is seen by a watch has passed through the API server's cache of its resource.
		changed.Data = map[string]string{"moved": fmt.Sprint(i)}
		stale := changed.DeepCopy()
		require.NoError(t, await(ctx, func() (err error) {
			changed, err = maps.Update(ctx, stale, metav1.UpdateOptions{})
			return err
		}))
		is, err := maps.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Len(t, is.Items, len(was.Items))
		for n, m := range was.Items {
			if m.Name == changed.Name {
				m = *changed
			}
			require.Equal(t, m, is.Items[n])
		}
		w, err := maps.Watch(ctx, metav1.ListOptions{ResourceVersion: is.ResourceVersion})
		require.NoError(t, err)
		gone := fmt.Sprintf("c%03d", 10+i)
		require.NoError(t, maps.Delete(ctx, gone, metav1.DeleteOptions{}))
		requireEvent(t, w, apiwatch.Deleted, gone, "")
		w.Stop()

		time.Sleep(5 * time.Second) // caches that broke off list again within a second or two
		for resource, lists := range s.listsFromStore(t) {
			if strings.Contains(resource, "apiServerIPInfo") {
				continue // the API servers that there are, listed every 10 s
			}
			require.LessOrEqual(t, lists-before[resource], 1.0, resource)
		}
	}
}

// listsFromStore returns how often the API server has listed each resource in its store.
func (s *server) listsFromStore(t *testing.T) map[string]float64 {
	t.Helper()
	body, err := s.Get(t.Context(), "/metrics")
	require.NoError(t, err)
	lists := make(map[string]float64)
	for _, m := range regexp.MustCompile(`(?m)^apiserver_storage_list_total\{(.*)\} (.*)$`).FindAllStringSubmatch(
		string(body), -1) {
		lists[m[1]], err = strconv.ParseFloat(m[2], 64)
		require.NoError(t, err)
	}
	require.NotEmpty(t, lists)
	return lists
}
