package kubernetes

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFieldsOfProtobufAndJSON(t *testing.T) {
	for _, value := range [][]byte{
		stored("v1", "ConfigMap", part(1, append(part(1, "a"), part(3, "b")...))),
		[]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`),
	} {
		fields, err := Fields(value)
		require.NoError(t, err)
		kind, name := Describe(fields)
		require.Equal(t, "v1 ConfigMap", kind)
		require.Equal(t, "b/a", name)
	}
	for _, value := range []string{"", "x", "[]", `{"a":1}`, "k8s:enc:aescbc:v1:k:x", "k8s\x00x"} {
		_, err := Fields([]byte(value))
		require.Error(t, err, value)
	}
}

func TestForCreateLeavesOutWhatTheServerSets(t *testing.T) {
	fields, err := Fields([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"u","resourceVersion":"1",
		"generation":2,"creationTimestamp":"2026-01-01T00:00:00Z","deletionTimestamp":"2026-01-01T00:00:00Z",
		"deletionGracePeriodSeconds":30,"managedFields":[],"selfLink":"/a","labels":{"l":"v"},"ownerReferences":[
		{"kind":"Node","name":"n"},{"kind":"ReplicaSet","name":"web","controller":true}]},"spec":{"x":1},"status":{"y":2}}`))
	require.NoError(t, err)
	require.Equal(t, "ReplicaSet web", ForCreate(fields))
	text, err := YAML(fields)
	require.NoError(t, err)
	require.Equal(t, "apiVersion: v1\nkind: Pod\nmetadata:\n  labels:\n    l: v\n  name: a\nspec:\n  x: 1\n", string(text))
	require.Empty(t, ForCreate(fields), "it has no owners now")
	fields, err = Fields([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"IPAddress","metadata":{"name":"10.0.0.9"},
		"spec":{"parentRef":{"resource":"services","namespace":"shop","name":"web"}}}`))
	require.NoError(t, err)
	require.Equal(t, "Service web", ForCreate(fields))
}
