package apiserver

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
)

// TestSeveralAPIServers: one API server on each of two nodes of the store, and one
// that knows all nodes. The others show at once what one acknowledged. Watches on one show the writes of the others.
// All of that continues when the leader of the store is killed.
func TestSeveralAPIServers(t *testing.T) {
	programs.NeedsKubernetes(t)
	forEachCluster(t, testSeveralAPIServers)
}

func testSeveralAPIServers(t *testing.T, st *store) {
	creds := controlplane.NewCredentials(t)
	leader := st.cluster.Leader()
	var servers []*server
	for i, endpoints := range [][]string{
		{st.cluster.Node((leader + 1) % 3).Endpoint()},
		{st.cluster.Node((leader + 2) % 3).Endpoint()},
		st.endpoints,
	} {
		servers = append(servers, startServerNumber(t, creds, i, &store{endpoints: endpoints, cluster: st.cluster}))
	}
	t.Run("all are endpoints of the service", func(t *testing.T) { testEndpoints(t, servers) })
	t.Run("a write is seen by all", func(t *testing.T) { testSeenByAll(t, servers) })
	t.Run("the leader of the store is killed", func(t *testing.T) { testLeaderKilled(t, st, servers) })
}

// testEndpoints: each API server keeps its address alive by a lease in the store.
func testEndpoints(t *testing.T, servers []*server) {
	ctx := within(t, 2*time.Minute)
	require.NoError(t, await(ctx, func() error {
		slicesOf, err := servers[0].DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Get(ctx, "kubernetes",
			metav1.GetOptions{})
		if err != nil {
			return err
		}
		var got []string
		for _, e := range slicesOf.Endpoints {
			got = append(got, e.Addresses...)
		}
		slices.Sort(got)
		if want := []string{"192.0.2.1", "192.0.2.2", "192.0.2.3"}; !slices.Equal(want, got) {
			return fmt.Errorf("endpoints are %v", got)
		}
		return nil
	}))
}

func testSeenByAll(t *testing.T, servers []*server) {
	ctx := within(t, 3*time.Minute)
	ns := servers[0].namespace(t)
	var observers []*observer
	for _, s := range servers {
		observers = append(observers, observe(t, ns, s))
	}
	const n = 60
	for i := range n {
		name := fmt.Sprintf("c%02d", i)
		made, err := servers[i%len(servers)].CoreV1().ConfigMaps(ns).Create(ctx,
			configMap(name, map[string]string{"state": name}), metav1.CreateOptions{})
		require.NoError(t, err)
		for _, s := range servers {
			got, err := s.CoreV1().ConfigMaps(ns).Get(ctx, name, metav1.GetOptions{})
			require.NoError(t, err)
			require.Equal(t, made.ResourceVersion, got.ResourceVersion)
			list, err := s.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
			require.NoError(t, err)
			require.Len(t, list.Items, i+1)
		}
	}
	list, err := servers[0].CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	for _, o := range observers {
		o.check(list, &traffic{})
		require.Empty(t, o.gaps)
		require.Len(t, o.events, n)
	}
}

func testLeaderKilled(t *testing.T, st *store, servers []*server) {
	ns := servers[0].namespace(t)
	var observers []*observer
	var informers []informed
	for _, s := range servers {
		observers = append(observers, observe(t, ns, s))
		informers = append(informers, inform(t, ns, s))
	}
	tr := startTraffic(t, ns, servers...)
	tr.awaitWrites(writesBetween)
	for range 3 * rounds() {
		i := st.cluster.Leader()
		t.Logf("node %d leads and is killed", i)
		st.cluster.Kill(i)
		st.cluster.Leader()
		// The API server that has only this node waits for it.
		st.cluster.Start(i)
		tr.awaitWrites(writesBetween)
	}
	tr.stop()
	for _, s := range servers {
		settle(t, s, ns)
	}
	for i, s := range servers {
		list := settle(t, s, ns)
		if i == 0 {
			tr.check(list.Items)
		}
		for j := range servers {
			observers[j].check(list, tr)
			informers[j].check(list)
		}
		require.True(t, s.Process().Running(), "API server %d has ended", i)
	}
}
