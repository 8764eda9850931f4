package console

import (
	"bytes"
	"errors"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	k8sjson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var (
	protobufPrefix  = []byte("k8s\x00")
	encryptedPrefix = []byte("k8s:enc:")
)

// withoutManaged: what the API server notes of who set which field is most of many
// objects, and changes with every write.
const withoutManaged = "managedFields are left out"

// provider returns what encrypted a value, as kube-apiserver's prefix says: k8s:enc:,
// then the kind, the version and the name of the key.
func provider(value []byte) string {
	parts := bytes.SplitN(value[len(encryptedPrefix):min(len(value), 256)], []byte(":"), 4)
	name := bytes.Join(parts[:min(len(parts), 3)], []byte(":"))
	if len(parts) < 3 || !printable(name) {
		return "by a provider that it does not name"
	}
	return string(name)
}

// protobuf views an object as kube-apiserver stores it, and reports whether parts of it
// are hidden. The types are those that client-go knows, which this program has anyway.
// Of an object that cannot be decoded, and may hold a Secret, all is hidden.
func (v viewer) protobuf(out *view, value []byte) (hidden bool) {
	hidden = bytes.Contains(value, secretWord)
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(value[len(protobufPrefix):]); err != nil {
		out.addNote("damaged: it begins like an object of Kubernetes in protobuf, but cannot be decoded: " + err.Error())
		return hidden
	}
	out.Type = typeName(unknown.APIVersion, unknown.Kind)
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, nil)
	switch {
	case runtime.IsNotRegisteredError(err):
		out.addNote("a type that sqlbrain does not know: shown by the numbers of its fields")
		if !hidden {
			out.Readable = cut(wire(unknown.Raw))
		}
		return hidden
	case err != nil:
		out.addNote("damaged: an object of Kubernetes in protobuf that cannot be decoded: " + err.Error())
		return hidden
	}
	raw, err := k8sjson.Marshal(object)
	if err == nil {
		var fields map[string]any
		if err = k8sjson.Unmarshal(raw, &fields); err == nil {
			return v.object(out, fields, unfit(raw))
		}
	}
	out.addNote("cannot be shown as YAML: " + err.Error())
	return hidden
}

// isObject reports whether JSON is an object of Kubernetes.
func isObject(fields map[string]any) bool {
	version, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	return version != "" && kind != ""
}

// object views an object of Kubernetes as YAML, and reports whether parts of it are
// hidden. why says why it does not fit, if it does not.
func (v viewer) object(out *view, fields map[string]any, why string) (hidden bool) {
	version, _ := fields["apiVersion"].(string)
	kind, _ := fields["kind"].(string)
	out.Kind, out.Type = kindKubernetes, typeName(version, kind)
	if metadata, ok := fields["metadata"].(map[string]any); ok && !v.managed {
		if _, ok := metadata["managedFields"]; ok {
			delete(metadata, "managedFields")
			out.addNote(withoutManaged)
		}
	}
	_, hidden = v.conceal(fields, 0)
	if why != "" {
		out.addNote(why)
		return hidden
	}
	text, err := yaml.Marshal(fields)
	if err != nil {
		out.addNote(errors.Join(errors.New("cannot be shown as YAML"), err).Error())
		return hidden
	}
	out.Readable = cut(string(text))
	return hidden
}

func typeName(version, kind string) string { return strings.TrimSpace(version + " " + kind) }
