package e2e

import (
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/helmchart"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
)

const deploy = "../../../deploy/"

// The API server admits what the chart and Kustomize make, strictly and without a warning, in a namespace
// whose pods must be restricted. Applied again, the objects stay as they are.
func TestManifestsAreAdmitted(t *testing.T) {
	programs.NeedsKubernetes(t)
	store := harness.StartNode(t, harness.SQLite)
	api := controlplane.StartAPIServer(t, controlplane.NewCredentials(t), controlplane.APIConfig{
		Store: []string{store.Endpoint()}, Flags: []string{"--disable-admission-plugins=ServiceAccount"},
	})
	var heard warnings
	config := api.Config()
	config.WarningHandler = &heard
	for name, objects := range rendered(t) {
		t.Run(name, func(t *testing.T) {
			// The namespace warns already of workloads whose pods it would not admit.
			ns, err := api.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
				GenerateName: "storage-",
				Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted",
					"pod-security.kubernetes.io/warn": "restricted"},
			}}, metav1.CreateOptions{})
			require.NoError(t, err)
			first := applyAll(t, config, ns.Name, objects)
			require.Len(t, first, len(objects))
			assert.Equal(t, first, applyAll(t, config, ns.Name, objects), "resource versions")
			assert.Empty(t, heard.take())
		})
	}
	t.Run("unrestricted", func(t *testing.T) {
		ns, err := api.Client().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "storage-", Labels: map[string]string{"pod-security.kubernetes.io/warn": "restricted"},
		}}, metav1.CreateOptions{})
		require.NoError(t, err)
		job := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal([]byte(`
apiVersion: batch/v1
kind: Job
metadata: {name: root}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: root, image: root}]}}}
`), &job.Object))
		applyAll(t, config, ns.Name, []*unstructured.Unstructured{job})
		assert.NotEmpty(t, heard.take(), "the API server does not look")
	})
	api.Stop()
}

// rendered returns what can be installed, without kinds that are not Kubernetes' own.
func rendered(t *testing.T) map[string][]*unstructured.Unstructured {
	t.Helper()
	all := make(map[string][]*unstructured.Unstructured)
	add := func(name string, text []byte) {
		o := &unstructured.Unstructured{}
		require.NoError(t, yaml.Unmarshal(text, &o.Object), name)
		group := o.GroupVersionKind().Group
		if group != "monitoring.coreos.com" && group != "gateway.networking.k8s.io" {
			all[name] = append(all[name], o)
		}
	}
	files, err := filepath.Glob(deploy + "helm/sqlbrain/ci/*-values.yaml")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		values, err := helmchart.ReadValues(file)
		require.NoError(t, err)
		r, err := helmchart.Render(t.Context(), deploy+"helm/sqlbrain", "store", "storage", values)
		require.NoError(t, err)
		for _, o := range r.Objects {
			add(filepath.Base(file), o.YAML)
		}
	}
	for _, folder := range []string{"kubernetes", "kubernetes-tls"} {
		resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), deploy+folder)
		require.NoError(t, err)
		for _, r := range resources.Resources() {
			text, err := r.AsYAML()
			require.NoError(t, err)
			add(folder, text)
		}
	}
	return all
}

// applyAll applies objects as `kubectl apply --server-side` does, and returns their resource versions by name.
func applyAll(t *testing.T, config *rest.Config, namespace string,
	objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	mapper := mapperOf(t, config)
	all, err := dynamic.NewForConfig(config)
	require.NoError(t, err)
	versions := make(map[string]string)
	for _, o := range objects {
		kind := o.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		require.NoError(t, err)
		text, err := o.MarshalJSON()
		require.NoError(t, err)
		options := metav1.PatchOptions{FieldManager: "installer", FieldValidation: metav1.FieldValidationStrict}
		applied, err := all.Resource(mapping.Resource).Namespace(namespace).Patch(t.Context(), o.GetName(),
			types.ApplyPatchType, text, options)
		require.NoError(t, err, "%s %s", kind.Kind, o.GetName())
		versions[kind.Kind+"/"+o.GetName()] = applied.GetResourceVersion()
	}
	return versions
}

// mapperOf returns what the API server serves.
func mapperOf(t *testing.T, config *rest.Config) meta.RESTMapper {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	groups, err := restmapper.GetAPIGroupResources(client.Discovery())
	require.NoError(t, err)
	return restmapper.NewDiscoveryRESTMapper(groups)
}

// warnings collects the warnings of the API server.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _ string, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}
