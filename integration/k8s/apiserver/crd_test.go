package apiserver

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

const group = "sqlbrain.example.com"

// definition is of a resource with the versions v1 and v2, of which v1 is stored.
func definition(plural, kind string) *apiextensionsv1.CustomResourceDefinition {
	version := func(name string, stored bool) apiextensionsv1.CustomResourceDefinitionVersion {
		anything := true
		return apiextensionsv1.CustomResourceDefinitionVersion{
			Name: name, Served: true, Storage: stored,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object",
				Properties: map[string]apiextensionsv1.JSONSchemaProps{
					"spec": {Type: "object", XPreserveUnknownFields: &anything},
				},
			}},
		}
	}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Kind: kind, ListKind: kind + "List",
				Singular: strings.ToLower(kind)},
			Scope:    apiextensionsv1.NamespaceScoped,
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{version("v1", true), version("v2", false)},
		},
	}
}

// define makes the API server serve a definition, and returns when it does so in
// both versions.
func (s *server) define(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	_, err := s.crds.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{})
	require.NoError(t, err)
	s.awaitServed(t, d)
}

func (s *server) awaitServed(t *testing.T, d *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	ctx := within(t, time.Minute)
	for _, v := range d.Spec.Versions {
		require.NoError(t, await(ctx, func() error {
			_, err := s.resource(d, v.Name, metav1.NamespaceDefault).List(ctx, metav1.ListOptions{})
			return err
		}))
	}
}

func (s *server) resource(d *apiextensionsv1.CustomResourceDefinition, version, ns string) dynamic.ResourceInterface {
	return s.dynamic.Resource(schema.GroupVersionResource{Group: group, Version: version,
		Resource: d.Spec.Names.Plural}).Namespace(ns)
}

func custom(d *apiextensionsv1.CustomResourceDefinition, version, name string,
	spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/" + version,
		"kind":       d.Spec.Names.Kind,
		"metadata":   map[string]any{"name": name},
		"spec":       spec,
	}}
}

// testCustomResources: without conversion, an object is the same in all versions,
// watches included, and stored in the version that is to be stored.
func testCustomResources(t *testing.T, s *server) {
	ctx := within(t, 3*time.Minute)
	d := definition("gadgets", "Gadget")
	s.define(t, d)
	ns := s.namespace(t)
	v1, v2 := s.resource(d, "v1", ns), s.resource(d, "v2", ns)
	w, err := v2.Watch(ctx, metav1.ListOptions{})
	require.NoError(t, err)
	defer w.Stop()
	made, err := v1.Create(ctx, custom(d, "v1", "g", map[string]any{"size": int64(3)}), metav1.CreateOptions{})
	require.NoError(t, err)
	e, open := <-w.ResultChan()
	require.True(t, open)
	seen := e.Object.(*unstructured.Unstructured)
	require.Equal(t, group+"/v2", seen.GetAPIVersion())
	require.Equal(t, made.GetResourceVersion(), seen.GetResourceVersion())
	got, err := v2.Get(ctx, "g", metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, made.Object["spec"], got.Object["spec"])
	require.Equal(t, "v1", s.storedVersion(t, "gadgets", ns, "g"))

	// The other version becomes the storage version: all later writes use it.
	d, err = s.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, d.Name, metav1.GetOptions{})
	require.NoError(t, err)
	d.Spec.Versions[0].Storage, d.Spec.Versions[1].Storage = false, true
	d, err = s.crds.ApiextensionsV1().CustomResourceDefinitions().Update(ctx, d, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.NoError(t, await(ctx, func() error {
		if _, err := v1.Update(ctx, larger(t, v1), metav1.UpdateOptions{}); err != nil {
			return err
		}
		if v := s.storedVersion(t, "gadgets", ns, "g"); v != "v2" {
			return fmt.Errorf("%s is stored", v)
		}
		return nil
	}))

	// A definition goes with all its objects.
	require.NoError(t, s.crds.ApiextensionsV1().CustomResourceDefinitions().Delete(ctx, d.Name, metav1.DeleteOptions{}))
	require.NoError(t, await(ctx, func() error {
		_, err := s.crds.ApiextensionsV1().CustomResourceDefinitions().Get(ctx, d.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("the definition is still there (%w)", err)
	}))
	answer, err := s.store.client(t).Get(ctx, "/registry/"+group+"/gadgets/"+ns+"/g")
	require.NoError(t, err)
	require.Empty(t, answer.Kvs)
}

// larger returns the object g with another size.
func larger(t *testing.T, v1 dynamic.ResourceInterface) *unstructured.Unstructured {
	t.Helper()
	o, err := v1.Get(t.Context(), "g", metav1.GetOptions{})
	require.NoError(t, err)
	size, _, err := unstructured.NestedInt64(o.Object, "spec", "size")
	require.NoError(t, err)
	require.NoError(t, unstructured.SetNestedField(o.Object, size+1, "spec", "size"))
	return o
}

// storedVersion is the version of an object as the store has it.
func (s *server) storedVersion(t *testing.T, plural, ns, name string) string {
	t.Helper()
	answer, err := s.store.client(t).Get(t.Context(), "/registry/"+group+"/"+plural+"/"+ns+"/"+name)
	require.NoError(t, err)
	require.Len(t, answer.Kvs, 1)
	var o struct {
		APIVersion string `json:"apiVersion"`
	}
	require.NoError(t, json.Unmarshal(answer.Kvs[0].Value, &o))
	return strings.TrimPrefix(o.APIVersion, group+"/")
}
