package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"

	"github.com/sqlbrain/sqlbrain/server/console/kubernetes"
)

var (
	protobufPrefix  = []byte(kubernetes.Prefix)
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

// protobuf views an object as kube-apiserver stores it, and reports whether parts of it are hidden. If an object
// cannot be decoded and may hold a Secret, all of it is hidden.
func (v viewer) protobuf(out *view, value []byte) (hidden bool) {
	hidden = bytes.Contains(value, secretWord)
	object, err := kubernetes.Decode(value)
	if object == nil {
		out.addNote("damaged: it begins like an object of Kubernetes in protobuf, but cannot be decoded: " + err.Error())
		return hidden
	}
	out.Type = typeName(object.APIVersion, object.Kind)
	var raw []byte
	if err == nil {
		raw, err = json.Marshal(object.Fields)
	}
	switch {
	case err == nil:
		return v.object(out, object.Fields, unfit(raw, true))
	case errors.Is(err, kubernetes.ErrUnknownKind):
		out.addNote("a type that sqlbrain does not know: shown by the numbers of its fields")
		if !hidden {
			out.Readable = cut(wire(object.Raw))
		}
	case errors.Is(err, kubernetes.ErrNoJSON):
		out.addNote("cannot be shown as YAML: " + err.Error())
	default:
		out.addNote("damaged: an object of Kubernetes in protobuf that cannot be decoded: " + err.Error())
	}
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
	text, err := kubernetes.YAML(fields)
	if err != nil {
		out.addNote(errors.Join(errors.New("cannot be shown as YAML"), err).Error())
		return hidden
	}
	out.Readable, out.YAML = cut(string(text)), !hidden && len(text) <= textBytes
	return hidden
}

func typeName(version, kind string) string { return strings.TrimSpace(version + " " + kind) }
