package deploy

import (
	"path"
	"regexp"
	"slices"
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
)

// manifests are what kustomize makes of the folder.
type manifests struct {
	configMaps map[string]*corev1.ConfigMap
	services   map[string]*corev1.Service
	job        batchv1.Job
	set        appsv1.StatefulSet
	policy     networkingv1.NetworkPolicy
	budget     policyv1.PodDisruptionBudget
}

// read decodes strictly: a field that does not exist is an error.
func read(t *testing.T) *manifests {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder+"kubernetes")
	require.NoError(t, err)
	m := &manifests{configMaps: make(map[string]*corev1.ConfigMap), services: make(map[string]*corev1.Service)}
	for _, r := range resources.Resources() {
		var into any
		switch r.GetKind() {
		case "ConfigMap":
			c := new(corev1.ConfigMap)
			m.configMaps[r.GetName()], into = c, c
		case "Service":
			s := new(corev1.Service)
			m.services[r.GetName()], into = s, s
		case "Job":
			into = &m.job
		case "StatefulSet":
			into = &m.set
		case "NetworkPolicy":
			into = &m.policy
		case "PodDisruptionBudget":
			into = &m.budget
		default:
			require.Fail(t, "nothing is known of it", r.GetKind())
		}
		text, err := r.AsYAML()
		require.NoError(t, err)
		require.NoError(t, yaml.UnmarshalStrict(text, into), r.GetName())
	}
	return m
}

func TestStrictness(t *testing.T) {
	assert.ErrorContains(t, yaml.UnmarshalStrict([]byte("spec: {replica: 3}"), new(appsv1.StatefulSet)), "replica")
}

func TestPods(t *testing.T) {
	m, variables := read(t), known(t)
	for name, pod := range map[string]corev1.PodSpec{"members": m.set.Spec.Template.Spec, "migrate": m.job.Spec.Template.Spec} {
		t.Run(name, func(t *testing.T) {
			require.Len(t, pod.Containers, 1)
			c := pod.Containers[0]
			environment := make(map[string]string)
			for _, from := range c.EnvFrom {
				config := m.configMaps[from.ConfigMapRef.Name]
				require.NotNil(t, config, "there is no ConfigMap %s", from.ConfigMapRef.Name)
				for k, v := range config.Data {
					environment[k] = v
				}
			}
			for i, e := range c.Env {
				environment[e.Name] = e.Value
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
			require.Len(t, c.VolumeMounts, len(pod.Volumes))
			volumes := make(map[string]corev1.VolumeSource) // by path
			for i, mount := range c.VolumeMounts {
				require.Equal(t, pod.Volumes[i].Name, mount.Name)
				volumes[mount.MountPath] = pod.Volumes[i].VolumeSource
			}
			// The password is where it is looked for.
			password := volumes[path.Dir(environment["SQLBRAIN_DATASTORE_PASSWORD_FILE"])]
			require.NotNil(t, password.Secret)
			assert.Equal(t, "password", path.Base(environment["SQLBRAIN_DATASTORE_PASSWORD_FILE"]))
			assert.NotEmpty(t, password.Secret.SecretName)
			// The root file system is read-only, and snapshots are written down.
			if name == "members" {
				assert.NotNil(t, volumes[environment["SQLBRAIN_SNAPSHOT_DIR"]].EmptyDir)
			}
			if p := pod.EnableServiceLinks; assert.NotNil(t, p) {
				assert.False(t, *p, "a service's variables are taken for settings")
			}
		})
	}
}

func TestMembersAreReached(t *testing.T) {
	m := read(t)
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
		assert.False(t, labels.SelectorFromSet(s.Spec.Selector).Matches(labels.Set(m.job.Spec.Template.Labels)), "%s selects the migration", name)
		for _, p := range s.Spec.Ports {
			assert.Equal(t, ports[p.TargetPort.String()], p.Port, "%s: %s", name, p.Name)
		}
	}
	require.Len(t, pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, 1)
	for what, selector := range map[string]*metav1.LabelSelector{
		"StatefulSet":         m.set.Spec.Selector,
		"PodDisruptionBudget": m.budget.Spec.Selector,
		"NetworkPolicy":       &m.policy.Spec.PodSelector,
		"anti-affinity":       pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector,
	} {
		s, err := metav1.LabelSelectorAsSelector(selector)
		require.NoError(t, err, what)
		assert.True(t, s.Matches(labels.Set(pod.Labels)), "%s selects no member", what)
		assert.False(t, s.Matches(labels.Set(m.job.Spec.Template.Labels)), "%s selects the migration", what)
	}
	for _, e := range pod.Spec.Containers[0].Env {
		if strings.HasSuffix(e.Name, "_URLS") {
			assert.Contains(t, e.Value, "."+members.Name+".", "%s is no name of the members' service", e.Name)
		}
	}
	c := pod.Spec.Containers[0]
	for _, p := range []*corev1.Probe{c.ReadinessProbe, c.LivenessProbe} {
		assert.Contains(t, ports, p.HTTPGet.Port.String())
	}
	// A restart does not help a member whose database is away, or lost data.
	assert.NotContains(t, c.LivenessProbe.HTTPGet.Path, "livez")
	assert.Less(t, m.budget.Spec.MinAvailable.IntVal, *m.set.Spec.Replicas, "nothing could ever be evicted")
}
