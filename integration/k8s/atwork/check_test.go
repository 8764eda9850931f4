package atwork

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/controlplane"
)

// kind is a resource of the API and where its objects are in the store.
type kind struct {
	gvr    schema.GroupVersionResource
	prefix string
}

func of(group, version, resource, prefix string) kind {
	return kind{schema.GroupVersionResource{Group: group, Version: version, Resource: resource},
		"/registry/" + prefix + "/"}
}

// kinds are those of which a cluster without additional users has objects.
var kinds = []kind{
	of("", "v1", "pods", "pods"),
	of("", "v1", "nodes", "minions"),
	of("", "v1", "namespaces", "namespaces"),
	of("", "v1", "configmaps", "configmaps"),
	of("", "v1", "serviceaccounts", "serviceaccounts"),
	of("", "v1", "services", "services/specs"),
	of("", "v1", "events", "events"),
	of("apps", "v1", "deployments", "deployments"),
	of("apps", "v1", "replicasets", "replicasets"),
	of("coordination.k8s.io", "v1", "leases", "leases"),
	of("discovery.k8s.io", "v1", "endpointslices", "endpointslices"),
	of("rbac.authorization.k8s.io", "v1", "clusterroles", "clusterroles"),
	of("rbac.authorization.k8s.io", "v1", "clusterrolebindings", "clusterrolebindings"),
	of("rbac.authorization.k8s.io", "v1", "roles", "roles"),
	of("rbac.authorization.k8s.io", "v1", "rolebindings", "rolebindings"),
	of("flowcontrol.apiserver.k8s.io", "v1", "flowschemas", "flowschemas"),
	of("flowcontrol.apiserver.k8s.io", "v1", "prioritylevelconfigurations", "prioritylevelconfigurations"),
	of("scheduling.k8s.io", "v1", "priorityclasses", "priorityclasses"),
	of("apiregistration.k8s.io", "v1", "apiservices", "apiregistration.k8s.io/apiservices"),
}

// compareWithStore demands that what the API server lists, which comes from its
// cache for most kinds, is what each of the store's nodes holds at that revision:
// the same keys, last changed at the same revisions. It returns how many objects
// were compared.
func (p *plane) compareWithStore(t *testing.T) (objects int) {
	t.Helper()
	client, err := metadata.NewForConfig(p.api.Config(controlplane.Admin))
	require.NoError(t, err)
	for _, k := range kinds {
		list, err := client.Resource(k.gvr).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err, "%s", k.gvr)
		listed := map[string]string{}
		for _, o := range list.Items {
			key := k.prefix + o.Name
			if o.Namespace != "" {
				key = k.prefix + o.Namespace + "/" + o.Name
			}
			listed[key] = o.ResourceVersion
		}
		for _, endpoint := range p.store.endpoints {
			require.Equal(t, p.stored(t, endpoint, k.prefix, list.ResourceVersion), listed, "%s at revision %s on %s", k.gvr,
				list.ResourceVersion, endpoint)
		}
		objects += len(listed)
	}
	return objects
}

// stored returns the revisions that the keys of a prefix were last changed at, as
// reported by one node of the store.
func (p *plane) stored(t *testing.T, endpoint, prefix, revision string) map[string]string {
	t.Helper()
	var at int64
	_, err := fmt.Sscan(revision, &at)
	require.NoError(t, err)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, DialTimeout: 10 * time.Second})
	require.NoError(t, err)
	defer func() { require.NoError(t, client.Close()) }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := client.Get(ctx, prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithRev(at))
	require.NoError(t, err)
	found := map[string]string{}
	for _, kv := range r.Kvs {
		found[string(kv.Key)] = fmt.Sprint(kv.ModRevision)
	}
	return found
}

// compareWatched demands that the pods that the watch has shown become those that are
// listed, at the same revisions.
func (p *plane) compareWatched(t *testing.T) {
	t.Helper()
	list, err := p.client.CoreV1().Pods("").List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	want := map[string]string{}
	for _, pod := range list.Items {
		want[pod.Namespace+"/"+pod.Name] = pod.ResourceVersion
	}
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		pods, err := p.seen.Core().V1().Pods().Lister().List(labels.Everything())
		require.NoError(c, err)
		got := map[string]string{}
		for _, pod := range pods {
			got[pod.Namespace+"/"+pod.Name] = pod.ResourceVersion
		}
		require.Equal(c, want, got)
	}, time.Minute, poll)
}

// nothingLeft demands that no key of the store has to do with the namespaces.
func (p *plane) nothingLeft(t *testing.T) {
	t.Helper()
	r, err := p.store.client.Get(t.Context(), "/registry/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	require.NoError(t, err)
	require.NotEmpty(t, r.Kvs)
	for _, kv := range r.Kvs {
		require.False(t, strings.Contains(string(kv.Key), "/team-") &&
			!strings.HasPrefix(string(kv.Key), "/registry/events/"), "%s is left", kv.Key)
	}
}

// metrics are the metrics of a program's /metrics page, by name.
type metrics map[string]*dto.MetricFamily

func metricsOf(t *testing.T, api *controlplane.APIServer) metrics {
	t.Helper()
	text, err := api.Get(t.Context(), "/metrics")
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err)
	return families
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range m.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

// consistencyChecks is how often the API server compared its cache with the store,
// by outcome.
func (m metrics) consistencyChecks(wanted string) map[string]float64 {
	outcomes := map[string]float64{}
	for _, one := range m["apiserver_storage_consistency_checks_total"].GetMetric() {
		l := labelsOf(one)
		if wanted == "" || l["resource"] == wanted {
			outcomes[l["status"]] += one.GetCounter().GetValue()
		}
	}
	return outcomes
}

// consistencyWait is more than the first check may take, which begins after five
// minutes, half as much again at most.
const consistencyWait = 10 * time.Minute

// awaitConsistencyCheck waits until the API server has compared all pods.
func (p *plane) awaitConsistencyCheck(t *testing.T) {
	t.Helper()
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		require.Positive(c, metricsOf(t, p.api).consistencyChecks("pods")["success"])
	}, consistencyWait, 5*time.Second)
}

func (p *plane) requireConsistent(t *testing.T) map[string]float64 {
	t.Helper()
	outcomes := metricsOf(t, p.api).consistencyChecks("")
	require.Zero(t, outcomes["failure"], "%v", outcomes)
	require.NotContains(t, p.api.Process().LogTail(1<<30), "Cache consistency check failed")
	return outcomes
}
