package e2e

import (
	"errors"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/controlplane"
	"github.com/sqlbrain/sqlbrain/integration/kubernetes/e2e/internal/programs"
)

// TestDeletedNamespaceComesBack as docs/operate/troubleshoot.md says: what diff --yaml prints can be created, in its
// order, and is what was deleted.
func TestDeletedNamespaceComesBack(t *testing.T) {
	programs.NeedsKubernetes(t)
	datastore := "sqlite://" + filepath.Join(t.TempDir(), "kubernetes.db")
	store := harness.StartNodeOn(t, datastore)
	api := controlplane.StartAPIServer(t, controlplane.NewCredentials(t), controlplane.APIConfig{
		Store: []string{store.Endpoint()}, Flags: []string{"--disable-admission-plugins=ServiceAccount"},
	})
	ctx, name := t.Context(), "shop"
	namespaces := api.Client().CoreV1().Namespaces()
	_, err := namespaces.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	require.NoError(t, err)
	objects := rendered(t)["mysql-values.yaml"]
	require.NotEmpty(t, applyAll(t, api.Config(), name, objects))
	all, err := dynamic.NewForConfig(api.Config())
	require.NoError(t, err)
	mapper := mapperOf(t, api.Config())
	resource := func(o *unstructured.Unstructured) dynamic.ResourceInterface {
		mapping, err := mapper.RESTMapping(o.GroupVersionKind().GroupKind(), o.GroupVersionKind().Version)
		require.NoError(t, err)
		if o.GetNamespace() == "" {
			return all.Resource(mapping.Resource)
		}
		return all.Resource(mapping.Resource).Namespace(o.GetNamespace())
	}
	var before []*unstructured.Unstructured
	for _, o := range objects {
		o.SetNamespace(name)
		got, err := resource(o).Get(ctx, o.GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		before = append(before, got)
	}
	kept, err := strconv.ParseInt(before[len(before)-1].GetResourceVersion(), 10, 64)
	require.NoError(t, err)

	for _, o := range before { // as the controller of namespaces does, which does not run here
		require.NoError(t, resource(o).Delete(ctx, o.GetName(), metav1.DeleteOptions{}))
	}
	require.NoError(t, namespaces.Delete(ctx, name, metav1.DeleteOptions{}))
	ending, err := namespaces.Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	ending.Spec.Finalizers = nil
	_, err = namespaces.Finalize(ctx, ending, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = namespaces.Get(ctx, name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)

	out := harness.Run(t, time.Minute, "", harness.Sqlbrain(t), "diff", "--at", strconv.FormatInt(kept, 10), "--yaml",
		"/registry/", "--datastore", datastore)
	require.Zero(t, out.Code, out.Stderr)
	for reader := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(out.Stdout), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := reader.Decode(&o.Object); errors.Is(err, io.EOF) {
			break
		} else {
			require.NoError(t, err)
		}
		if len(o.Object) > 0 {
			_, err := resource(o).Create(ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
			require.NoError(t, err, "%s %s", o.GetKind(), o.GetName())
		}
	}
	for _, was := range before {
		is, err := resource(was).Get(ctx, was.GetName(), metav1.GetOptions{})
		require.NoError(t, err)
		for _, part := range []string{"spec", "data", "type", "rules"} {
			require.Equal(t, was.Object[part], is.Object[part], "%s %s: %s", was.GetKind(), was.GetName(), part)
		}
		require.Equal(t, was.GetLabels(), is.GetLabels())
	}
	api.Stop()
}
