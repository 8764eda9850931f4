package deploy

import (
	"fmt"
	"maps"
	"net/url"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// variants are what can be installed: folders that kustomize reads, and the chart with the values of a cluster.
var variants = []string{"kubernetes", "kubernetes-tls", "helm"}

// manifests are what kustomize or Helm makes of a variant.
type manifests struct {
	configMaps map[string]*corev1.ConfigMap
	services   map[string]*corev1.Service
	job        batchv1.Job
	backup     batchv1.CronJob
	set        appsv1.StatefulSet
	policies   map[string]*networkingv1.NetworkPolicy
	budget     policyv1.PodDisruptionBudget
	accounts   map[string]*corev1.ServiceAccount
	ingress    networkingv1.Ingress
	custom     map[string]map[string]any // of kinds that are not Kubernetes' own, by kind
}

func newManifests() *manifests {
	return &manifests{
		configMaps: make(map[string]*corev1.ConfigMap), services: make(map[string]*corev1.Service),
		policies: make(map[string]*networkingv1.NetworkPolicy), custom: make(map[string]map[string]any),
		accounts: make(map[string]*corev1.ServiceAccount),
	}
}

// read returns the manifests of a variant.
func read(t *testing.T, variant string) *manifests {
	t.Helper()
	if variant == "helm" {
		m, _ := readChart(t, clusterValues)
		return m
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder+variant)
	require.NoError(t, err)
	m := newManifests()
	for _, r := range resources.Resources() {
		text, err := r.AsYAML()
		require.NoError(t, err)
		m.add(t, r.GetKind(), r.GetName(), text)
	}
	return m
}

// add decodes an object strictly: a field that does not exist is an error.
func (m *manifests) add(t *testing.T, kind, name string, text []byte) {
	t.Helper()
	var into any
	switch kind {
	case "ConfigMap":
		c := new(corev1.ConfigMap)
		m.configMaps[name], into = c, c
	case "Service":
		s := new(corev1.Service)
		m.services[name], into = s, s
	case "Job":
		require.Empty(t, m.job.Name, "a second job")
		into = &m.job
	case "CronJob":
		into = &m.backup
	case "StatefulSet":
		require.Empty(t, m.set.Name, "a second StatefulSet")
		into = &m.set
	case "NetworkPolicy":
		p := new(networkingv1.NetworkPolicy)
		m.policies[name], into = p, p
	case "PodDisruptionBudget":
		into = &m.budget
	case "ServiceAccount":
		a := new(corev1.ServiceAccount)
		m.accounts[name], into = a, a
	case "Ingress":
		into = &m.ingress
	case "ServiceMonitor", "PrometheusRule", "HTTPRoute":
		o := make(map[string]any)
		m.custom[kind], into = o, &o
	default:
		require.Fail(t, "nothing is known of it", kind)
	}
	require.NoError(t, yaml.UnmarshalStrict(text, into), "%s\n%s", name, text)
}

func TestStrictness(t *testing.T) {
	assert.ErrorContains(t, yaml.UnmarshalStrict([]byte("spec: {replica: 3}"), new(appsv1.StatefulSet)), "replica")
}

// environmentOf returns what the first container of a pod has in its environment, and what its file of settings sets,
// in the form of variables. Values that Kubernetes fills in are empty.
func (m *manifests) environmentOf(t *testing.T, pod *corev1.PodSpec) map[string]string {
	c := pod.Containers[0]
	environment := make(map[string]string)
	for _, from := range c.EnvFrom {
		config := m.configMaps[from.ConfigMapRef.Name]
		require.NotNil(t, config, "there is no ConfigMap %s", from.ConfigMapRef.Name)
		maps.Copy(environment, config.Data)
	}
	for _, e := range c.Env {
		environment[e.Name] = e.Value
	}
	if file := environment[variable("config-file")]; file != "" {
		delete(environment, variable("config-file"))
		var settings map[string]any
		require.NoError(t, yaml.UnmarshalStrict([]byte(m.mounted(t, pod, file)), &settings))
		for name, value := range settings {
			key := variable(name)
			require.NotContains(t, environment, key, "it is set twice")
			environment[key] = fmt.Sprint(value)
		}
	}
	return environment
}

// mounted returns the content of a file that the first container of a pod has from a ConfigMap.
func (m *manifests) mounted(t *testing.T, pod *corev1.PodSpec, file string) string {
	t.Helper()
	for i, mount := range pod.Containers[0].VolumeMounts {
		if mount.MountPath == path.Dir(file) {
			source := pod.Volumes[i].ConfigMap
			require.NotNil(t, source, file)
			require.NotNil(t, m.configMaps[source.Name], "there is no ConfigMap %s", source.Name)
			text, there := m.configMaps[source.Name].Data[path.Base(file)]
			require.True(t, there, file)
			return text
		}
	}
	require.Fail(t, "no volume holds the file", file)
	return ""
}

// volumesOf returns what is mounted into the first container of a pod, by path.
func volumesOf(t *testing.T, pod *corev1.PodSpec) map[string]corev1.VolumeSource {
	mounts := pod.Containers[0].VolumeMounts
	require.Len(t, mounts, len(pod.Volumes))
	volumes := make(map[string]corev1.VolumeSource)
	for i, mount := range mounts {
		require.Equal(t, pod.Volumes[i].Name, mount.Name)
		volumes[mount.MountPath] = pod.Volumes[i].VolumeSource
	}
	return volumes
}

func TestPods(t *testing.T) {
	variables := known(t)
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) { testPods(t, read(t, variant), variables) })
	}
}

func testPods(t *testing.T, m *manifests, variables map[string]bool) {
	for name, pod := range map[string]*corev1.PodSpec{"members": &m.set.Spec.Template.Spec,
		"migrate": &m.job.Spec.Template.Spec} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, pod.Containers, 1)
			c := pod.Containers[0]
			environment, volumes := m.environmentOf(t, pod), volumesOf(t, pod)
			for i, e := range c.Env {
				for _, used := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(e.Value, -1) {
					assert.True(t, slices.ContainsFunc(c.Env[:i], func(e corev1.EnvVar) bool { return e.Name == used[1] }),
						"%s is not set above %s", used[1], e.Name)
				}
			}
			for k := range environment {
				if strings.HasPrefix(k, "SQLBRAIN_") {
					assert.Contains(t, variables, k)
				}
			}
			// The password is where it is looked for.
			password := volumes[path.Dir(environment[variable("datastore-password-file")])]
			require.NotNil(t, password.Secret)
			assert.Equal(t, "password", path.Base(environment[variable("datastore-password-file")]))
			assert.NotEmpty(t, password.Secret.SecretName)
			// The root file system is read-only, and snapshots are written down.
			if name == "members" {
				assert.NotNil(t, volumes[environment[variable("snapshot-dir")]].EmptyDir)
			}
			memory := c.Resources.Limits.Memory()
			assert.False(t, memory.IsZero(), "nothing bounds its memory")
			assert.LessOrEqual(t, c.Resources.Requests.Memory().Value(), memory.Value()*9/10,
				"what it may use beyond is below a tenth")
			if p := pod.EnableServiceLinks; assert.NotNil(t, p) {
				assert.False(t, *p, "a service's variables are taken for settings")
			}
		})
	}
}

// A member keeps itself within what it requests, and its limit is above that.
func TestMembersBoundTheirMemory(t *testing.T) {
	for _, variant := range variants {
		pod := read(t, variant).set.Spec.Template.Spec
		i := slices.IndexFunc(pod.Containers[0].Env,
			func(e corev1.EnvVar) bool { return e.Name == variable("memory-limit-bytes") })
		require.NotEqual(t, -1, i)
		from := pod.Containers[0].Env[i].ValueFrom
		require.NotNil(t, from)
		require.NotNil(t, from.ResourceFieldRef)
		assert.Equal(t, "requests.memory", from.ResourceFieldRef.Resource)
	}
}

func TestClientsHaveTLS(t *testing.T) {
	m := read(t, "kubernetes-tls")
	pod := &m.set.Spec.Template.Spec
	environment, volumes := m.environmentOf(t, pod), volumesOf(t, pod)
	for _, name := range []string{variable("listen-client-urls"), variable("advertise-client-urls")} {
		assert.Contains(t, environment[name], "https://", name)
		assert.NotContains(t, environment[name], "http://", name)
	}
	assert.Equal(t, "true", environment[variable("client-cert-auth")])
	files := map[string]string{variable("cert-file"): "tls.crt", variable("key-file"): "tls.key",
		variable("trusted-ca-file"): "ca.crt"}
	for name, file := range files {
		assert.Equal(t, file, path.Base(environment[name]), name)
		secret := volumes[path.Dir(environment[name])].Secret
		if assert.NotNil(t, secret, name) {
			assert.Equal(t, "sqlbrain-tls", secret.SecretName)
		}
	}
}

// The migration has the members' settings, without their files and their own names.
func TestMigrationRuns(t *testing.T) {
	for _, variant := range variants {
		m := read(t, variant)
		pod := &m.job.Spec.Template.Spec
		out, err := sqlbrain(t, m.environmentOf(t, pod), t.TempDir(), pod.Containers[0].Args...).CombinedOutput()
		assert.NoError(t, err, "%s: %s", variant, out)
	}
}

// sqlbrain returns a command with a pod's variables, on an SQLite file in the directory.
func sqlbrain(t *testing.T, environment map[string]string, directory string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(harness.Sqlbrain(t), args...)
	for name, value := range environment {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	cmd.Env = append(cmd.Env, variable("datastore")+"=sqlite://"+filepath.Join(directory, "db"),
		variable("datastore-password-file")+"=")
	return cmd
}

// selects reports whether a selector that is there selects the labels.
func selects(t *testing.T, s *metav1.LabelSelector, l map[string]string) bool {
	if s == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(s)
	require.NoError(t, err)
	return selector.Matches(labels.Set(l))
}

// openPorts returns to which ports of a pod others in the namespace may connect.
func openPorts(t *testing.T, m *manifests, pod, from map[string]string) (ports []string) {
	t.Helper()
	for _, p := range m.policies {
		if !selects(t, &p.Spec.PodSelector, pod) {
			continue
		}
		for _, rule := range p.Spec.Ingress {
			require.NotEmpty(t, rule.From, "%s lets everyone in", p.Name)
			require.NotEmpty(t, rule.Ports, "%s opens all ports", p.Name)
			for _, peer := range rule.From {
				if peer.NamespaceSelector == nil && selects(t, peer.PodSelector, from) {
					for _, port := range rule.Ports {
						ports = append(ports, port.Port.String())
					}
				}
			}
		}
	}
	slices.Sort(ports)
	return ports
}

// reachedPorts returns to which ports a pod may connect.
func reachedPorts(t *testing.T, m *manifests, pod map[string]string) (ports []int) {
	t.Helper()
	for _, p := range m.policies {
		if !selects(t, &p.Spec.PodSelector, pod) {
			continue
		}
		assert.ElementsMatch(t, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
			p.Spec.PolicyTypes)
		for _, rule := range p.Spec.Egress {
			require.NotEmpty(t, rule.Ports, "%s opens all ports", p.Name)
			for _, port := range rule.Ports {
				ports = append(ports, port.Port.IntValue())
			}
		}
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

func TestNetworkPolicies(t *testing.T) {
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) { testNetworkPolicies(t, read(t, variant)) })
	}
}

func testNetworkPolicies(t *testing.T, m *manifests) {
	member, migration := m.set.Spec.Template.Labels, m.job.Spec.Template.Labels
	stranger := map[string]string{"app": "another"}
	assert.Empty(t, openPorts(t, m, member, stranger))
	assert.Equal(t, []string{"client"}, openPorts(t, m, member, map[string]string{"sqlbrain-client": "true"}))
	assert.Equal(t, []string{"metrics"}, openPorts(t, m, member, map[string]string{"sqlbrain-metrics": "true"}))
	assert.Equal(t, []string{"peer"}, openPorts(t, m, member, member))
	for _, from := range []map[string]string{stranger, {"sqlbrain-client": "true"}, member, migration} {
		assert.Empty(t, openPorts(t, m, migration, from))
	}

	datastore, err := url.Parse(m.environmentOf(t, &m.job.Spec.Template.Spec)[variable("datastore")])
	require.NoError(t, err)
	database, err := strconv.Atoi(datastore.Port())
	require.NoError(t, err)
	assert.Equal(t, []int{53, 2380, database}, reachedPorts(t, m, member))
	assert.Equal(t, []int{53, database}, reachedPorts(t, m, migration))
}

func TestMembersAreReached(t *testing.T) {
	for _, variant := range variants {
		t.Run(variant, func(t *testing.T) { testMembersAreReached(t, read(t, variant)) })
	}
}

func testMembersAreReached(t *testing.T, m *manifests) {
	pod := m.set.Spec.Template
	members := m.services[m.set.Spec.ServiceName]
	require.NotNil(t, members, "the StatefulSet's service does not exist")
	assert.Equal(t, corev1.ClusterIPNone, members.Spec.ClusterIP)
	assert.True(t, members.Spec.PublishNotReadyAddresses, "a member is reached by members before it is ready")

	ports := make(map[string]int32)
	for _, p := range pod.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, s := range m.services {
		assert.True(t, labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(pod.Labels)), "%s selects no member", name)
		assert.False(t, labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(m.job.Spec.Template.Labels)),
			"%s selects the migration", name)
		for _, p := range s.Spec.Ports {
			assert.Equal(t, ports[p.TargetPort.String()], p.Port, "%s: %s", name, p.Name)
		}
	}
	require.Len(t, pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 1)
	for what, selector := range map[string]*metav1.LabelSelector{
		"StatefulSet":         m.set.Spec.Selector,
		"PodDisruptionBudget": m.budget.Spec.Selector,
		"NetworkPolicy":       &m.policies["sqlbrain"].Spec.PodSelector,
		"anti-affinity":       pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector,
	} {
		s, err := metav1.LabelSelectorAsSelector(selector)
		require.NoError(t, err, what)
		assert.True(t, s.Matches(labels.Set(pod.Labels)), "%s selects no member", what)
		assert.False(t, s.Matches(labels.Set(m.job.Spec.Template.Labels)), "%s selects the migration", what)
	}
	for _, e := range pod.Spec.Containers[0].Env {
		if strings.Contains(e.Name, "ADVERTISE") {
			assert.Contains(t, e.Value, "."+members.Name+".", "%s is not a name of the members' service", e.Name)
		}
	}
	c := pod.Spec.Containers[0]
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		assert.Contains(t, ports, p.HTTPGet.Port.String())
	}
	// A restart does not help a member whose database is away, or lost data.
	assert.NotContains(t, c.LivenessProbe.HTTPGet.Path, "livez")
	assert.Less(t, m.budget.Spec.MinAvailable.IntVal, *m.set.Spec.Replicas, "nothing could ever be evicted")
	if p := m.budget.Spec.UnhealthyPodEvictionPolicy; assert.NotNil(t, p) {
		assert.Equal(t, policyv1.AlwaysAllow, *p, "without the database no member is ready")
	}
}
