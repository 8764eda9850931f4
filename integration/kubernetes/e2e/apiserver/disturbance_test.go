package apiserver

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"

	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
)

// TestDisturbances: nodes of the store and the database under it are killed, stopped
// and frozen under a running API server. Nothing that it acknowledged is lost,
// no read is stale, watches and informers agree with a fresh list in the end, and
// the API server itself continues.
func TestDisturbances(t *testing.T) {
	programs.NeedsKubernetes(t)
	forEachStore(t, func(t *testing.T, st *store) {
		s := startServer(t, controlplane.NewCredentials(t), st)
		ns := s.namespace(t)
		o := observe(t, ns, s)
		informed := inform(t, ns, s)
		tr := startTraffic(t, ns, s)
		tr.awaitWrites(writesBetween)
		for range rounds() {
			for _, d := range disturbances(t, st) {
				t.Log(d.name)
				d.do()
				tr.awaitWrites(writesBetween)
			}
		}
		tr.stop()
		list := settle(t, s, ns)
		tr.check(list.Items)
		o.check(list, tr)
		informed.check(list)
		require.True(t, s.Process().Running(), "the API server has ended")
		requireConsistent(t, s)
		if rounds() > 1 {
			awaitChecks(t, s)
		}
	})
}

// writesBetween is how many writes must be acknowledged before the next disturbance.
const writesBetween = 200

// rounds is how often each disturbance is done.
func rounds() int {
	if os.Getenv("SQLBRAIN_LONG") == "1" {
		return 10
	}
	return 1
}

type disturbance struct {
	name string
	do   func()
}

func disturbances(t *testing.T, st *store) (all []disturbance) {
	add := func(name string, do func()) { all = append(all, disturbance{name, do}) }
	if n := st.node; n != nil {
		add("the node is killed and started again", func() { n.Kill(); n.Start() })
		add("the node is stopped and started again", func() { n.Stop(); n.Start() })
		return all
	}
	c := st.cluster
	add("the leader is killed", func() { i := c.Leader(); c.Kill(i); c.Leader(); c.Start(i) })
	add("the leader is stopped", func() { i := c.Leader(); c.Stop(i); c.Leader(); c.Start(i) })
	add("a follower is killed", func() { i := (c.Leader() + 1) % c.Size(); c.Kill(i); c.Start(i) })
	add("all nodes are killed at once", func() {
		for i := range c.Size() {
			c.Kill(i)
		}
		for i := range c.Size() {
			c.StartWithoutWaiting(i)
		}
		for i := range c.Size() {
			c.Node(i).AwaitReady()
		}
	})
	if db := st.database; db != nil {
		add("the database is killed and started again", func() { db.Kill(); db.Start() })
		add("the database is stopped and started again", func() { db.Stop(); db.Start() })
		add("the database is frozen, until no node can lead, and continues", func() {
			db.Pause()
			defer db.Resume()
			require.NoError(t, await(within(t, time.Minute), func() error {
				_, err := st.client(t).Get(within(t, time.Second), "k")
				if err == nil {
					return errors.New("a read was answered")
				}
				return nil
			}))
		})
	}
	return all
}

// settle lists when no request is in flight: a write without an answer may
// take effect until the API server abandons it.
func settle(t *testing.T, s *server, ns string) *corev1.ConfigMapList {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	var list *corev1.ConfigMapList
	require.NoError(t, awaitEvery(ctx, pollMetrics, func() error {
		if n := s.metric("apiserver_current_inflight_requests", `request_kind="mutating"`); n > 0 {
			return fmt.Errorf("%v requests are under way", n)
		}
		var err error
		list, err = s.CoreV1().ConfigMaps(ns).List(ctx, metav1.ListOptions{})
		return err
	}))
	return list
}

// informed is what a shared informer, as every controller has, believes to be there.
type informed struct {
	t    *testing.T
	list func() map[string]string
}

func inform(t *testing.T, ns string, s *server) informed {
	t.Helper()
	factory := informers.NewSharedInformerFactoryWithOptions(s.Clientset, 0, informers.WithNamespace(ns))
	lister := factory.Core().V1().ConfigMaps().Lister()
	stop := make(chan struct{})
	factory.Start(stop)
	t.Cleanup(func() { close(stop); factory.Shutdown() })
	factory.WaitForCacheSync(t.Context().Done())
	return informed{t, func() map[string]string {
		states := map[string]string{}
		all, err := lister.List(labels.Everything())
		if err != nil {
			t.Error(err)
		}
		for _, c := range all {
			states[c.Name] = stateOf(c) + "@" + c.ResourceVersion
		}
		return states
	}}
}

// check waits until the informer believes what the list says.
func (i informed) check(list *corev1.ConfigMapList) {
	i.t.Helper()
	want := map[string]string{}
	for _, c := range list.Items {
		want[c.Name] = stateOf(&c) + "@" + c.ResourceVersion
	}
	require.NoError(i.t, await(within(i.t, 2*time.Minute), func() error {
		if got := i.list(); !maps.Equal(got, want) {
			return fmt.Errorf("the informer has %v, listed are %v", got, want)
		}
		return nil
	}))
}
