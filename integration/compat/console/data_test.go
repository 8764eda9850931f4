package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

func put(t *testing.T, c *clientv3.Client, key string, value []byte, options ...clientv3.OpOption) int64 {
	t.Helper()
	res, err := c.Put(t.Context(), key, string(value), options...)
	require.NoError(t, err)
	return res.Header.Revision
}

// stored is an object as kube-apiserver stores it.
func stored(t *testing.T, o runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	require.True(t, ok)
	var b bytes.Buffer
	require.NoError(t, scheme.Codecs.EncoderForVersion(info.Serializer, corev1.SchemeGroupVersion).Encode(o, &b))
	return b.Bytes()
}

func pod(name, image string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "default", Labels: map[string]string{"app": "web"},
			ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kubelet", Operation: "Update"}},
		},
		Spec: corev1.PodSpec{NodeName: "node-1", Containers: []corev1.Container{{Name: "web", Image: image}}},
	}
}

// fill puts what a small cluster has, and returns the revision of the first change of
// web-07.
func fill(t *testing.T, c *clientv3.Client) (revision int64) {
	t.Helper()
	for i := range 30 {
		put(t, c, fmt.Sprintf("/registry/pods/default/web-%02d", i),
			stored(t, pod(fmt.Sprintf("web-%02d", i), "example.org/web:1.0")))
	}
	for i := range 150 {
		put(t, c, fmt.Sprintf("/registry/events/default/event-%03d", i), bytes.Repeat([]byte("x"), 200))
	}
	crd, err := json.Marshal(map[string]any{
		"apiVersion": "example.org/v1", "kind": "Thing", "metadata": map[string]any{"name": "one"},
		"spec": map[string]any{"size": 3},
	})
	require.NoError(t, err)
	put(t, c, "/registry/example.org/things/default/one", crd)
	put(t, c, "/registry/secrets/default/login", stored(t, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "login", Namespace: "default"},
		Data:       map[string][]byte{"password": []byte("hunter2")},
	}))
	put(t, c, "/registry/pods/default/damaged", append(stored(t, pod("damaged", "x"))[:40], 0xff, 0xff, 0xff))
	put(t, c, "greeting", []byte("hello, <b>world</b>"))
	put(t, c, "bin\x00ary\xff", []byte{0, 1, 2, 0xff})
	lease, err := c.Grant(t.Context(), 3600)
	require.NoError(t, err)
	put(t, c, "leased", []byte("x"), clientv3.WithLease(lease.ID))

	// The history of web-07: a changed image, a deletion, and a new creation.
	const key = "/registry/pods/default/web-07"
	changed := pod("web-07", "example.org/web:1.1")
	changed.Spec.NodeName = "node-2"
	revision = put(t, c, key, stored(t, changed))
	_, err = c.Delete(t.Context(), key)
	require.NoError(t, err)
	put(t, c, key, stored(t, pod("web-07", "example.org/web:2.0")))
	return revision
}

// link is a key as addresses of the console have it.
func link(key string) string { return url.PathEscape(key) }
