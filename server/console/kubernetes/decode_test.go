package kubernetes

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// part is a field that holds text, bytes or a message.
func part[T ~string | ~[]byte](number protowire.Number, value T) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), []byte(value))
}

func stored(version, kind string, raw []byte) []byte {
	typeMeta := append(part(1, version), part(2, kind)...)
	return append(append([]byte(Prefix), part(1, typeMeta)...), part(2, raw)...)
}

func TestDecode(t *testing.T) {
	seconds := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 1700000000)
	tests := map[string]struct {
		version, kind string
		raw           []byte
		want          string
		err           error // errAny: any that is neither of the others
	}{
		"empty": {"v1", "ConfigMap", nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`, nil},
		"a nil list is null": {"v1", "PodList", nil, `{"apiVersion":"v1","items":null,"kind":"PodList","metadata":{}}`,
			nil},
		"an unknown field": {"v1", "ConfigMap", part(900, "x"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{}}`,
			nil},
		"a message twice": {"v1", "ConfigMap", append(part(1, part(1, "a")), part(1, part(3, "b"))...),
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"b"}}`, nil},
		"a time": {"v1", "ConfigMap", part(1, part(8, seconds)),
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"creationTimestamp":"2023-11-14T22:13:20Z"}}`, nil},
		"JSON in protobuf": {"v1", "List", part(2, part(1, `{"a":9007199254740993}`)),
			`{"apiVersion":"v1","items":[{"a":9007199254740993}],"kind":"List","metadata":{}}`, nil},
		"no JSON in protobuf": {"v1", "List", part(2, part(1, "k8s\x00")), "", ErrNoJSON},
		"an unknown kind":     {"example.org/v1", "Thing", part(1, "x"), "", ErrUnknownKind},
		"no kind":             {"v1", "", nil, "", errAny},
		"a cut field":         {"v1", "ConfigMap", []byte{0x0a, 5}, "", errAny},
		"the wrong wire type": {"v1", "ConfigMap", protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType),
			1), "", errAny},
		"a map without values": {"v1", "ConfigMap", part(2, part(1, "key")),
			`{"apiVersion":"v1","data":{"key":""},"kind":"ConfigMap","metadata":{}}`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Decode(stored(tt.version, tt.kind, tt.raw))
			require.NotNil(t, got, "the envelope is whole")
			require.Equal(t, tt.version, got.APIVersion)
			require.Equal(t, tt.kind, got.Kind)
			require.True(t, bytes.Equal(tt.raw, got.Raw))
			switch {
			case tt.err == nil:
				require.NoError(t, err)
				raw, err := json.Marshal(got.Fields)
				require.NoError(t, err)
				require.Equal(t, tt.want, string(raw))
			case errors.Is(tt.err, errAny):
				require.Error(t, err)
				require.False(t, errors.Is(err, ErrNoJSON) || errors.Is(err, ErrUnknownKind), err)
			default:
				require.ErrorIs(t, err, tt.err)
			}
			if err != nil {
				require.Nil(t, got.Fields)
			}
		})
	}
}

var errAny = errors.New("any other error")

func TestDecodeWithoutEnvelope(t *testing.T) {
	for _, value := range []string{Prefix + "\xff\xff", Prefix + "\x0a\x05"} {
		got, err := Decode([]byte(value))
		require.Nil(t, got)
		require.Error(t, err)
	}
}

func TestDecodingIsBounded(t *testing.T) {
	s, err := load()
	require.NoError(t, err)
	of := func(version, kind string) int { return s.empty[s.kinds[typeName{version, kind}].desc.FullName()] }
	each := 1 + of("batch/v1", "CronJob")
	require.Greater(t, each, 10, "an empty one has fields, in objects that are in it")
	items := bytes.Repeat(part(2, ""), (maxValues-of("batch/v1", "CronJobList"))/each)
	_, err = Decode(stored("batch/v1", "CronJobList", items))
	require.NoError(t, err)
	_, err = Decode(stored("batch/v1", "CronJobList", append(items, part(2, "")...)))
	require.ErrorIs(t, err, ErrNoJSON)
	groups := part(2, part(14, part(4, bytes.Repeat([]byte{1}, maxValues)))) // packed, of a Pod
	_, err = Decode(stored("v1", "Pod", groups))
	require.ErrorIs(t, err, ErrNoJSON)

	// A composite pod group of a Workload holds others.
	m, path := recursive(s)
	require.NotNil(t, m, "a message that holds itself")
	for _, depth := range []int{maxDepth / len(path), maxDepth/len(path) + 1} {
		var raw []byte
		for range depth {
			for i := len(path) - 1; i >= 0; i-- {
				raw = part(path[i], raw)
			}
		}
		_, err := s.unmarshal(m, raw)
		require.Equal(t, depth*len(path) > maxDepth, errors.Is(err, ErrNoJSON), "%d: %v", depth, err)
	}
}

func TestValuesOfEmptyMessagesAreCounted(t *testing.T) {
	s, err := load()
	require.NoError(t, err)
	for name, m := range s.kinds {
		o, err := Decode(stored(name.version, name.kind, nil))
		require.NoError(t, err)
		require.Equal(t, valuesIn(o.Fields)-3, s.empty[m.desc.FullName()], "%s: without itself and its type", name)
	}
}

func valuesIn(x any) int {
	n := 1
	fields, _ := x.(map[string]any)
	for _, part := range fields {
		n += valuesIn(part)
	}
	return n
}

// recursive returns a message that holds itself, and the fields that lead there.
func recursive(s *schema) (*message, []protowire.Number) {
	for _, m := range s.messages {
		if path := pathTo(m, m, nil, 4); path != nil {
			return m, path
		}
	}
	return nil, nil
}

func pathTo(from, to *message, path []protowire.Number, left int) []protowire.Number {
	for _, f := range from.fields {
		if f.message == nil || f.desc.IsMap() || left == 0 {
			continue
		}
		next := append(slices.Clone(path), f.desc.Number())
		if f.message == to {
			return next
		}
		if found := pathTo(f.message, to, next, left-1); found != nil {
			return found
		}
	}
	return nil
}

func FuzzDecode(f *testing.F) {
	f.Add(stored("v1", "Pod", append(part(1, part(1, "web")), part(2, part(10, "n1"))...)))
	f.Add(stored("v1", "List", part(2, part(1, `{"a":1}`))))
	f.Add(stored("apps/v1", "Deployment", part(2, part(2, part(1, part(1, "a"))))))
	f.Fuzz(func(t *testing.T, value []byte) {
		got, err := Decode(value)
		if (err == nil) != (got != nil && got.Fields != nil) {
			t.Fatalf("%+v with error %v", got, err)
		}
		if err == nil && (got.Fields["apiVersion"] == "" || got.Fields["kind"] == "") {
			t.Fatalf("without a type: %+v", got)
		}
	})
}
