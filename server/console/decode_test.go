package console

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/server/mvcc/read"
)

// message concatenates the fields of a message in protobuf.
func message(fields ...[]byte) []byte { return bytes.Join(fields, nil) }

// text is a field that holds text, bytes or a message.
func text[T ~string | ~[]byte](number protowire.Number, value T) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), []byte(value))
}

func integer(number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), value)
}

// entry is an entry of a map of strings.
func entry(number protowire.Number, key, value string) []byte {
	return text(number, message(text(1, key), text(2, value)))
}

// stored is an object as kube-apiserver stores it.
func stored(version, kind string, raw []byte) []byte {
	return message(protobufPrefix, text(1, message(text(1, version), text(2, kind))), text(2, raw), text(3, ""),
		text(4, ""))
}

// storedUnknown is an object of a type that sqlbrain does not know.
func storedUnknown(raw []byte) []byte { return stored("example.org/v1", "Thing", raw) }

func testPod() []byte {
	metadata := message(text(1, "web"), text(3, "default"), integer(7, 9007199254740993), text(17, text(1, "kubelet")))
	return stored("v1", "Pod", message(text(1, metadata), text(2, text(10, "n1")), text(3, "")))
}

const podJSON = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","namespace":"default","generation":9007199254740993,` +
	`"managedFields":[{"manager":"kubelet"}]},"spec":{"nodeName":"n1","containers":null},"status":{}}`

// rawSecret is the message of a Secret.
func rawSecret() []byte {
	return message(text(1, message(text(1, "s"), entry(12, lastApplied, "hunter2"))), entry(2, "password", "hunter2"),
		entry(4, "other", "hunter2"))
}

func testSecret() []byte { return stored("v1", "Secret", rawSecret()) }

const secretJSON = `{"kind":"Secret","apiVersion":"v1","metadata":{"name":"s","annotations":{"` + lastApplied +
	`":"hunter2"}},` +
	`"data":{"password":"aHVudGVyMg=="},"stringData":{"other":"hunter2"}}`

const secretYAML = `apiVersion: v1
data:
  password: aHVudGVyMg==
kind: Secret
metadata:
  annotations:
    ` + lastApplied + `: hunter2
  name: s
stringData:
  other: hunter2
`

func TestValuesAreShownByKind(t *testing.T) {
	tests := map[string]struct {
		value    string
		kind     string
		readable string
		text     string
		note     string
		editable bool
	}{
		"nothing": {"", kindEmpty, "", "", "", true},
		"text":    {"hello\nworld\t✓", kindText, "", "hello\nworld\t✓", "", true},
		"bytes":   {"\x00\xff", kindBinary, "", "", "", false},
		"control": {"a\x1b[31m", kindBinary, "", "", "", false},
		"bidi":    {"a\u202eb", kindBinary, "", "", "", false},
		"json": {`{"b":1,"a":[12345678901234567890]}`, kindJSON,
			"{\n  \"b\": 1,\n  \"a\": [\n    12345678901234567890\n  ]\n}", `{"b":1,"a":[12345678901234567890]}`, "", true},
		"broken json": {`{"b":`, kindText, "", `{"b":`, "", true},
		"a number":    {`12`, kindText, "", `12`, "", true},
		"deep json": {strings.Repeat("[", 900) + strings.Repeat("]", 900), kindJSON, "",
			strings.Repeat("[", 900) + strings.Repeat("]", 900), "nested too deeply to be indented", true},
		"encrypted": {"k8s:enc:aescbc:v1:key1:\x00\x01", kindEncrypted, "", "",
			"kube-apiserver has encrypted this object: aescbc:v1:key1", false},
		"encrypted, odd": {"k8s:enc:\x00", kindEncrypted, "", "",
			"kube-apiserver has encrypted this object: by a provider that it does not name", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := testViewer.view([]byte(tt.value))
			require.Equal(t, tt.kind, got.Kind)
			require.Equal(t, tt.readable, got.Readable)
			require.Equal(t, tt.text, got.Text)
			require.Equal(t, tt.note, got.Note)
			require.Equal(t, tt.editable, got.Editable)
			require.Equal(t, len(tt.value), got.Bytes)
		})
	}
}

func TestKubernetesObjectsAreYAML(t *testing.T) {
	inProtobuf := testViewer.view(testPod())
	raw := []byte(podJSON)
	inJSON := testViewer.view(raw)
	require.Equal(t, inProtobuf.Readable, inJSON.Readable)
	for _, v := range []*view{inProtobuf, inJSON} {
		require.Equal(t, kindKubernetes, v.Kind)
		require.Equal(t, "v1 Pod", v.Type)
		require.Contains(t, v.Readable, "  name: web\n")
		require.Contains(t, v.Readable, "nodeName: n1\n")
		require.Contains(t, v.Readable, "generation: 9007199254740993\n", "not rounded as a float is")
		require.NotContains(t, v.Readable, "kubelet")
		require.Equal(t, "managedFields are left out", v.Note)
	}
	require.False(t, inProtobuf.Editable)
	require.NotEmpty(t, inProtobuf.Hex)
	require.True(t, inJSON.Editable)
	require.Equal(t, string(raw), inJSON.Text)
	all := viewer{managed: true, fingerprint: testViewer.fingerprint}.view(raw)
	require.Contains(t, all.Readable, "manager: kubelet")
}

func TestSecretsAreHiddenInEveryForm(t *testing.T) {
	values := map[string][]byte{"protobuf": testSecret(), "json": []byte(secretJSON)}
	values["json of no form"] = []byte(
		`{"apiVersion":"v1","kind":"Secret","data":"hunter2","stringData":{"a":["hunter2"]}}`)
	values["deep json"] = []byte(`{"apiVersion":"v1","kind":"Secret","data":{"a":"hunter2"},"x":` +
		strings.Repeat("[", 500) + strings.Repeat("]", 500) + "}")
	whole := values["protobuf"]
	values["damaged"] = append(bytes.Clone(whole[:len(whole)-6]), 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	for name, value := range values {
		t.Run(name, func(t *testing.T) {
			v := testViewer.view(value)
			require.Equal(t, kindKubernetes, v.Kind)
			require.NotEmpty(t, v.Note)
			require.False(t, v.Editable)
			body, err := json.Marshal(v)
			require.NoError(t, err)
			for _, form := range []string{"hunter2", "aHVudGVyMg", "68 75 6e 74"} {
				require.NotContains(t, string(body), form)
			}
		})
	}
	require.Contains(t, testViewer.view(values["json"]).Readable, "password: 'hidden: 7 bytes, fingerprint of h'")
	require.Contains(t, testViewer.view(values["protobuf"]).Readable, "password: 'hidden: 7 bytes, fingerprint of h'")
}

// encodings are values that hold the Secret of testSecret, in forms that kube-apiserver,
// kubectl and backups write.
func encodings(t *testing.T) map[string][]byte {
	t.Helper()
	inProtobuf, inJSON, inYAML := testSecret(), []byte(secretJSON), []byte(secretYAML)
	list := stored("v1", "SecretList", message(text(1, ""), text(2, rawSecret())))
	quoted, err := json.Marshal(string(inJSON))
	require.NoError(t, err)
	without := bytes.Replace(inJSON, []byte(`"apiVersion":"v1",`), nil, 1)
	listOf := func(raw []byte) []byte {
		return stored("v1", "List", message(text(1, ""), text(2, text(1, raw))))
	}
	return map[string][]byte{
		"yaml":                    inYAML,
		"yaml, flow style":        []byte("{apiVersion: v1, kind: Secret, data: {password: aHVudGVyMg==}}"),
		"yaml, several documents": append([]byte("apiVersion: v1\nkind: Pod\n---\n"), inYAML...),
		"yaml with an alias":      []byte("kind: Secret\ndata: &d {password: aHVudGVyMg==}\nstringData: *d\n"),
		"json without a version":  without,
		"json with a byte order":  append([]byte("\ufeff"), inJSON...),
		"json that is cut":        inJSON[:len(inJSON)-1],
		"json with odd letters":   bytes.Replace(inJSON, []byte(`"data"`), []byte("\"x\":\"a\u202eb\",\"data\""), 1),
		"json with escapes":       []byte(`{"kind":"\u0053ecret","data":{"password":"aHVudGVyMg=="}}`),
		"json of a huge number":   []byte(`{"n":1e999999,"kind":"Secret","stringData":{"password":"hunter2"}}`),
		"an array":                append(append([]byte("["), inJSON...), ']'),
		"list in json":            append(append([]byte(`{"apiVersion":"v1","kind":"List","items":[`), inJSON...), "]}"...),
		"list of secrets in json": append(append([]byte(`{"apiVersion":"v1","kind":"SecretList","items":[`),
			bytes.Replace(without, []byte(`"kind":"Secret",`), nil, 1)...), "]}"...),
		"list of secrets":          list,
		"list of json in protobuf": listOf(inJSON),
		"list of protobuf":         listOf(inProtobuf),
		"unknown type":             storedUnknown(inProtobuf),
		"unknown type, json":       storedUnknown(inJSON),
		"text in json": append(append([]byte(`{"apiVersion":"v1","kind":"ConfigMap","data":{"manifest.yaml":`),
			quoted...), "}}"...),
		"annotation of another one": append(append([]byte(`{"apiVersion":"v1","kind":"Pod","metadata":{"annotations":{"`+
			lastApplied+`":`), quoted...), "}}}"...),
		"annotation of a tool": append(
			append([]byte(`{"apiVersion":"v1","kind":"Secret","metadata":{"annotations":{"kapp.k14s.io/original":`), quoted...),
			"}}}"...),
		"cbor": []byte("\xd9\xd9\xf7\xa3JapiVersionBv1DkindFSecretJstringData\xa1HpasswordGhunter2"),
	}
}

func TestSecretsAreHiddenWhereverTheyAre(t *testing.T) {
	for name, value := range encodings(t) {
		t.Run(name, func(t *testing.T) {
			changed := bytes.ReplaceAll(bytes.ReplaceAll(value, []byte("aHVudGVyMg"), []byte("aHVudGVyMw")), []byte("hunter2"),
				[]byte("hunter3"))
			v := viewer{fingerprint: newFingerprint()}
			one := v.view(value)
			require.Contains(t, one.Note, secretNote)
			require.False(t, one.Editable)
			history, err := v.history(t.Context(), &read.KeyHistory{Versions: []*coder.Record{{ModRevision: 3, Version: 2,
				Value: changed}, {ModRevision: 2, Version: 1, Value: value}}}, 10)
			require.NoError(t, err)
			require.NotEmpty(t, history.Versions[0].Diff.Hunks, "that it has changed is shown")
			body, err := json.Marshal([]any{one, history})
			require.NoError(t, err)
			for _, form := range []string{"hunter", "aHVudGVyM", "68 75 6e 74", "68756e74"} {
				require.NotContains(t, string(body), form)
			}
		})
	}
}

func TestValuesBelowTheKeysOfSecretsAreHidden(t *testing.T) {
	v := viewer{key: []byte("/registry/secrets/default/s"), fingerprint: newFingerprint()}
	for _, value := range []string{"hunter2", "\x00hunter2", `{"password":"hunter2"}`, "k8s\x00hunter2"} {
		got := v.view([]byte(value))
		require.Contains(t, got.Note, secretNote)
		body, err := json.Marshal(got)
		require.NoError(t, err)
		require.NotContains(t, string(body), "hunter2")
		require.NotContains(t, string(body), "68 75 6e 74")
	}
	require.Equal(t, kindEncrypted, v.view([]byte("k8s:enc:aescbc:v1:key1:\x00")).Kind)
}

func TestValuesThatOnlyMentionSecretsAreShown(t *testing.T) {
	for name, value := range map[string]string{
		"text":        "of what kind is a Secret?",
		"yaml":        "kinds: [Secret]\n",
		"a reference": `{"apiVersion":"v1","kind":"Pod","metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Secret","name":"s"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			v := testViewer.view([]byte(value))
			require.True(t, v.Editable)
			require.Equal(t, value, v.Text)
			require.Empty(t, v.Note)
		})
	}
}

func TestTextOfMixedLineEndsIsNotEdited(t *testing.T) {
	for text, editable := range map[string]bool{
		"a": true, "a\nb\n": true, "a\r\nb\r\n": true, "\r\n": true,
		"a\r\nb\n": false, "\na\r\n": false, "a\rb": false, "a\r\nb\r": false, "a\r\r\nb": false,
	} {
		v := testViewer.view([]byte(text))
		require.Equal(t, editable, v.Editable, "%q", text)
		require.Equal(t, text, v.Text)
	}
}

func TestIndentingIsBounded(t *testing.T) {
	long := strings.Repeat("[", 90) + strings.Repeat("1,", 100<<10) + "1" + strings.Repeat("]", 90)
	v := testViewer.view([]byte(long))
	require.Empty(t, v.Readable)
	require.Contains(t, v.Note, "too long to be indented")
	require.Equal(t, long, v.Text)
	require.Empty(t, unfit([]byte(`{"a":"`+strings.Repeat("[", 200)+`\"["}`), true), "brackets in a string are no nesting")

	many := strings.Repeat(`{"":0},`, yamlValues/2) + "1"
	v = testViewer.view([]byte(`{"apiVersion":"v1","kind":"Thing","a":[` + many + "]}"))
	require.Empty(t, v.Readable)
	require.Contains(t, v.Note, "too many values to be shown as YAML")
	require.NotEmpty(t, testViewer.view([]byte("["+many+"]")).Readable, "JSON takes less memory")
	for _, items := range []string{
		"x: [" + strings.Repeat("{a},", yamlValues) + "]", "x:\n" + strings.Repeat("- a\n", yamlValues),
	} {
		_, ok := decodeYAML([]byte("kind: Secret\n" + items))
		require.False(t, ok)
		require.True(t, testViewer.view([]byte("kind: Secret\n"+items)).Hidden)
	}
}

func TestFingerprintsDifferByValueAndProcess(t *testing.T) {
	a, b := newFingerprint(), newFingerprint()
	require.Equal(t, a([]byte("x")), a([]byte("x")))
	require.NotEqual(t, a([]byte("x")), a([]byte("y")))
	require.NotEqual(t, a([]byte("x")), b([]byte("x")), "another process has another key")
}

func TestUnknownTypesAreShownByField(t *testing.T) {
	inner := []byte{0x08, 0x96, 0x01, 0x12, 0x03, 'a', 'b', 'c', 0x1d, 1, 0, 0, 0}
	outer := append([]byte{0x0a, byte(len(inner))}, inner...)
	v := testViewer.view(storedUnknown(outer))
	require.Equal(t, "example.org/v1 Thing", v.Type)
	require.Equal(t, "1: \n  1: 150\n  2: \"abc\"\n  3: 0x00000001\n", v.Readable)
	require.Contains(t, v.Note, "a type that sqlbrain does not know")
}

func TestDamagedProtobufGivesAPlainMessage(t *testing.T) {
	pod := testPod()
	for name, value := range map[string][]byte{
		"the prefix alone":     protobufPrefix,
		"cut in the envelope":  pod[:12],
		"cut in the object":    pod[:len(pod)-10],
		"rubbish":              append(bytes.Clone(protobufPrefix), bytes.Repeat([]byte{0xff}, 40)...),
		"unknown with rubbish": storedUnknown(bytes.Repeat([]byte{0xff}, 40)),
		"a bit turned":         flipped(pod, len(pod)/2),
	} {
		t.Run(name, func(t *testing.T) {
			v := testViewer.view(value)
			require.Equal(t, kindKubernetes, v.Kind)
			require.Equal(t, len(value), v.Bytes)
			if name != "a bit turned" && name != "the prefix alone" {
				require.NotEmpty(t, v.Note+v.Readable)
				require.NotEmpty(t, v.Hex)
			}
		})
	}
	require.Contains(t, testViewer.view(pod[:12]).Note, "damaged")
}

func flipped(b []byte, at int) []byte {
	b = bytes.Clone(b)
	b[at] ^= 0x80
	return b
}

func FuzzView(f *testing.F) {
	f.Add(testPod())
	f.Add(testSecret())
	f.Add(storedUnknown([]byte{0x0a, 0x02, 0x08, 0x01}))
	f.Add([]byte(`{"apiVersion":"v1","kind":"Secret","data":{"a":"aHVudGVyMg=="}}`))
	f.Add([]byte("k8s:enc:kms:v2:x:abc"))
	f.Fuzz(func(t *testing.T, value []byte) {
		v := testViewerOf(value).view(value)
		if v.Editable && v.Text != string(value) {
			t.Fatalf("what can be edited is not the value: %q", v.Text)
		}
		if _, err := json.Marshal(v); err != nil {
			t.Fatal(err)
		}
		if len(v.Readable) > textBytes+8 || len(v.Hex) > 5*hexBytes {
			t.Fatalf("%d and %d bytes are shown", len(v.Readable), len(v.Hex))
		}
	})
}

func testViewerOf(value []byte) viewer {
	return viewer{managed: len(value)%2 == 0, fingerprint: newFingerprint()}
}
