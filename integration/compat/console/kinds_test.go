package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/randfill"

	"github.com/sqlbrain/sqlbrain/server/console/kubernetes"
)

// TestEveryKindDecodesLikeItsGoType compares what the console decodes with what Kubernetes' own decoder and
// encoding/json make of the same bytes, for every kind that client-go knows: empty objects, objects with every
// field set, and random ones.
func TestEveryKindDecodesLikeItsGoType(t *testing.T) {
	const fills = 8
	kinds := map[string]runtime.Object{}
	for gvk := range scheme.Scheme.AllKnownTypes() {
		object, err := scheme.Scheme.New(gvk)
		require.NoError(t, err)
		if _, list := object.(metav1.ObjectMetaAccessor); gvk.Version != runtime.APIVersionInternal &&
			(list || hasTypeMeta(object)) {
			object.GetObjectKind().SetGroupVersionKind(gvk)
			kinds[gvk.GroupVersion().String()+" "+gvk.Kind] = object
		}
	}
	require.Greater(t, len(kinds), 400)
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		t.Run(name, func(t *testing.T) {
			for fill := range fills {
				object := kinds[name].DeepCopyObject()
				gvk := object.GetObjectKind().GroupVersionKind()
				switch filler := randfill.NewWithSeed(int64(fill)).Funcs(fillers...).MaxDepth(20); fill {
				case 0:
				case 1:
					filler.NilChance(0).NumElements(1, 1).Fill(object)
				default:
					filler.NilChance(0.8-0.1*float64(fill)).NumElements(0, 2).Fill(object)
				}
				object.GetObjectKind().SetGroupVersionKind(gvk)
				compareObject(t, fmt.Sprintf("fill %d", fill), object)
			}
		})
	}
}

// hasTypeMeta reports whether an object can be stored: watch events cannot.
func hasTypeMeta(o runtime.Object) bool {
	_, ok := o.GetObjectKind().(*metav1.TypeMeta)
	return ok
}

// fillers set what randfill cannot, to values that kube-apiserver stores.
var fillers = []any{
	func(o *metav1.TypeMeta, _ randfill.Continue) {},
	func(o *metav1.Time, c randfill.Continue) {
		if c.Intn(4) > 0 {
			*o = metav1.Unix(int64(c.Uint32()), 0)
		}
	},
	func(o *metav1.MicroTime, c randfill.Continue) {
		if c.Intn(4) > 0 {
			*o = metav1.NewMicroTime(time.Unix(int64(c.Uint32()), c.Int63n(1e9)))
		}
	},
	func(o *resource.Quantity, c randfill.Continue) {
		if c.Intn(4) > 0 {
			*o = *resource.NewMilliQuantity(c.Int63n(1<<40), []resource.Format{resource.DecimalSI, resource.BinarySI,
				resource.DecimalExponent}[c.Intn(3)])
		}
	},
	func(o *intstr.IntOrString, c randfill.Continue) {
		*o = []intstr.IntOrString{intstr.FromInt32(c.Int31()), intstr.FromString(c.String(0)), {}}[c.Intn(3)]
	},
	func(o *runtime.RawExtension, c randfill.Continue) {
		o.Raw = [][]byte{nil, []byte(`{"a":[1,2.5,"x<y",{"b":null}],"n":9007199254740993}`), []byte(` "text"`)}[c.Intn(3)]
	},
	func(o *metav1.FieldsV1, c randfill.Continue) {
		o.SetRawBytes([][]byte{nil, []byte(`{"f:metadata":{"f:labels":{".":{},"f:a":{}}}}`)}[c.Intn(2)])
	},
}

func compareObject(t *testing.T, what string, object runtime.Object) {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	require.True(t, ok)
	var value bytes.Buffer
	require.NoError(t, info.Serializer.Encode(object, &value))
	reference, _, err := scheme.Codecs.UniversalDeserializer().Decode(value.Bytes(), nil, nil)
	require.NoError(t, err)
	got, err := kubernetes.Decode(value.Bytes())
	require.NoError(t, err)
	gvk := object.GetObjectKind().GroupVersionKind()
	require.Equal(t, []string{gvk.GroupVersion().String(), gvk.Kind}, []string{got.APIVersion, got.Kind})
	require.Equal(t, fieldsOf(t, reference), fieldsOf(t, got.Fields), what)

	// What the console writes is what Kubernetes reads.
	written, err := kubernetes.Encode(value.Bytes(), got.Fields)
	require.NoError(t, err, what)
	again, _, err := scheme.Codecs.UniversalDeserializer().Decode(written, nil, nil)
	require.NoError(t, err, what)
	// null is the same as nothing there: a pointer to a zero time becomes none.
	require.Equal(t, noNulls(fieldsOf(t, reference)), noNulls(fieldsOf(t, again)), what)
}

// nulls finds fields that are null in indented JSON, and noNulls leaves them out.
var nulls = regexp.MustCompile(`(?m)^ *"[^\n]*": null,?\n|,$`)

func noNulls(indented string) string { return nulls.ReplaceAllString(indented, "") }

// fieldsOf returns the JSON of x in one form: indented and sorted by name.
func fieldsOf(t *testing.T, x any) string {
	t.Helper()
	raw, err := json.Marshal(x)
	require.NoError(t, err)
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var fields map[string]any
	require.NoError(t, d.Decode(&fields))
	raw, err = json.MarshalIndent(fields, "", " ")
	require.NoError(t, err)
	return string(raw)
}
