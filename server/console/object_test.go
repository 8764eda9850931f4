package console_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
)

func TestObjectsAreEditedAsYAML(t *testing.T) {
	b, c := open(t, writing)
	lease, err := c.Grant(t.Context(), 100)
	require.NoError(t, err)
	const stored = `{"apiVersion":"example.org/v1","kind":"Thing","metadata":{"managedFields":[{"manager":"m"}],` +
		`"name":"one"},"spec":{"big":9007199254740993,"size":3,"text":"�"}}`
	_, err = c.Put(t.Context(), "thing", stored, clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	// v1 ConfigMap, with the name c and the data a: b.
	const configMap = "k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01c\x12\x06\x0a\x01a\x12\x01b"
	put(t, c, "map", configMap)
	text := func(key string) (string, float64) {
		got := b.ok(b.ask("key", "key", param(key)))
		require.Equal(t, true, got["value"].(object2)["yaml"])
		return got["value"].(object2)["readable"].(string), got["meta"].(object2)["mod_revision"].(float64)
	}
	edit := func(key, yaml string, revision float64, write bool) (int, object) {
		return b.post("object", object{"key": []byte(key), "yaml": yaml, "mod_revision": revision, "write": write})
	}

	yaml, at := text("thing")
	require.NotContains(t, yaml, "managedFields")
	same := b.ok(edit("thing", yaml, at, false))
	require.Empty(t, same["diff"].(object2)["hunks"])
	bigger := strings.Replace(yaml, "size: 3", "size: 4", 1)
	checked := b.ok(edit("thing", bigger, at, false))
	require.Len(t, checked["diff"].(object2)["hunks"], 1)
	require.Nil(t, checked["revision"])
	require.EqualValues(t, at+2, b.ok(edit("thing", bigger, at, true))["revision"])
	got, err := c.Get(t.Context(), "thing")
	require.NoError(t, err)
	require.Equal(t, strings.Replace(stored, `"size":3`, `"size":4`, 1), string(got.Kvs[0].Value),
		"and managedFields stay")
	require.Equal(t, int64(lease.ID), got.Kvs[0].Lease)
	status, out := edit("thing", bigger, at, true)
	require.Equal(t, http.StatusConflict, status, out)

	yaml, at = text("map")
	b.ok(edit("map", strings.Replace(yaml, "a: b", "a: c\n  d: \"5\"", 1), at, true))
	yaml, at = text("map")
	require.Contains(t, yaml, "data:\n  a: c\n  d: \"5\"\n")
	got, err = c.Get(t.Context(), "map")
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(string(got.Kvs[0].Value), "k8s\x00"))

	for change, want := range map[[2]string]string{
		{"a: c", "a: [c"}:                       "line ",
		{"a: c", "a: c\n  a: c"}:                "already set",
		{"a: c", "a: 5"}:                        "data.a: must be text",
		{"data:", "dta:"}:                       "dta: there is no such field",
		{"kind: ConfigMap", "kind: Secret"}:     "kind: must stay as it is",
		{"name: c", "name: d"}:                  "metadata.name: must stay as it is",
		{"apiVersion: v1\n", ""}:                "apiVersion: must stay as it is",
		{"name: c", "name: c\n  generation: x"}: "metadata.generation: must be a whole number",
	} {
		status, out := edit("map", strings.Replace(yaml, change[0], change[1], 1), at, true)
		require.Equal(t, http.StatusUnprocessableEntity, status, change)
		require.Contains(t, out["error"], want)
	}
	status, out = edit("map", "- a", at, true)
	require.Equal(t, http.StatusUnprocessableEntity, status)
	require.Contains(t, out["error"], "must be one object")
}

func TestObjectsThatWouldLoseSomethingAreNotEdited(t *testing.T) {
	b, c := open(t, writing)
	const thing = `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"c"},`
	const configMap = "k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x0d\x0a\x03\x0a\x01c\x12\x06\x0a\x01"
	for stored, want := range map[string]string{
		"k8s\x00\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12\x09\x0a\x03\x0a\x01c\xfa\x06\x01x": "has fields that sqlbrain " +
			"does not know",
		`{"apiVersion":"v1","kind":"Thing","metadata":{"name":"c"},"n":1.0}`: "values that YAML has no exact " +
			"form for",
		configMap + "a\x12\x01\xff": "not Unicode",
		configMap + "\xff\x12\x01a": "not Unicode",
		"k8s\x00\x0a\x0a\x0a\x02v1\x12\x04List\x12\x11\x12\x0f\x0a\x0d" + `{"a":1,"a":2}`: "has the field a twice",
		thing + `"a":"\ud800 �"}`:      "not Unicode",
		thing + `"b":[{"a":1,"a":2}]}`: "has the field a twice",
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"c"},"data":{"a":"Yg=="}}`: "cannot be edited as YAML",
		"k8s\x00\x0a\x0c\x0a\x02v1\x12\x06Secret\x12\x0e\x12\x0c\x0a\x03pwd\x12\x05hello": "cannot be edited as YAML",
		"apiVersion: v1": "cannot be edited as YAML",
	} {
		put(t, c, "a", stored)
		got := b.ok(b.ask("key", "key", param("a")))
		at := got["meta"].(object2)["mod_revision"]
		readable, _ := got["value"].(object2)["readable"].(string)
		status, out := b.post("object", object{"key": []byte("a"), "yaml": readable, "mod_revision": at, "write": true})
		require.Contains(t, []int{http.StatusUnprocessableEntity, http.StatusBadRequest}, status)
		require.Contains(t, out["error"], want)
		res, err := c.Get(t.Context(), "a")
		require.NoError(t, err)
		require.Equal(t, stored, string(res.Kvs[0].Value))
	}
	readOnly := start(t)
	put(t, etcd(t, readOnly), "a", `{"apiVersion":"v1","kind":"Thing"}`)
	status, _ := newBrowser(t, readOnly).post("object",
		object{"key": []byte("a"), "yaml": "apiVersion: v1\nkind: Thing\n", "mod_revision": 2, "write": true})
	require.Equal(t, http.StatusForbidden, status)
}
