package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.yaml.in/yaml/v2"

	"github.com/sqlbrain/sqlbrain/server/console/kubernetes"
)

// objectBody says what an edit would change, or changed.
type objectBody struct {
	Diff     *diffBody `json:"diff"`
	Revision int64     `json:"revision,omitempty"` // of the write
}

// object checks an edited object of Kubernetes in YAML, and with write stores it in the form that it has, if the key
// still is at mod_revision. Errors of the text have status 422.
func (h *Handler) object(w http.ResponseWriter, r *http.Request) (any, error) {
	var in objectEdit
	if err := decode(r, &in); err != nil {
		return nil, err
	}
	return h.renders(func(_ http.ResponseWriter, r *http.Request) (any, error) { return h.edit(r, &in) })(w, r)
}

// objectEdit is an edited object.
type objectEdit struct {
	Key         []byte `json:"key"`
	YAML        string `json:"yaml"`
	ModRevision int64  `json:"mod_revision"`
	Write       bool   `json:"write"`
}

func (h *Handler) edit(r *http.Request, in *objectEdit) (*objectBody, error) {
	res, err := h.kv.Range(caller(r), &pb.RangeRequest{Key: in.Key})
	switch {
	case err != nil:
		return nil, err
	case len(res.Kvs) == 0 || res.Kvs[0].ModRevision != in.ModRevision:
		return nil, errChanged
	}
	stored, v := res.Kvs[0].Value, viewer{key: in.Key, fingerprint: h.fingerprint}
	before := v.view(stored)
	if !before.YAML {
		return nil, badRequest("this value cannot be edited as YAML")
	}
	if err := unchanged(stored, before.Readable); err != nil {
		return nil, failure{http.StatusUnprocessableEntity, "this object cannot be edited here: " + err.Error()}
	}
	value, err := edited(stored, in.YAML)
	if err != nil {
		return nil, failure{http.StatusUnprocessableEntity, err.Error()}
	}
	out := &objectBody{Diff: diff(before.Readable, v.view(value).Readable)}
	if !in.Write {
		return out, nil
	}
	written, err := h.change(r, in.Key, in.ModRevision, putOf(in.Key, value))
	if err == nil {
		out.Revision = written.Revision
	}
	return out, err
}

// unchanged returns an error if a stored object would lose something by being written from its YAML.
func unchanged(stored []byte, text string) error {
	value, err := edited(stored, text)
	if err != nil {
		return err
	}
	before, err := objectFields(stored)
	if err != nil {
		return err
	}
	after, err := objectFields(value)
	if err != nil {
		return err
	}
	if !reflect.DeepEqual(before, after) {
		return errors.New("it has values that YAML has no exact form for")
	}
	return nil
}

// edited returns a stored object of Kubernetes with the fields of a YAML document, in the form that it is stored in.
// If the document has no managedFields, those that are stored stay.
func edited(stored []byte, text string) ([]byte, error) {
	old, err := objectFields(stored)
	if err != nil {
		return nil, err
	}
	fields, err := oneObject(text)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{"apiVersion", "kind"} {
		if !reflect.DeepEqual(fields[name], old[name]) {
			return nil, errors.New(name + ": must stay as it is")
		}
	}
	oldMeta, _ := old["metadata"].(map[string]any)
	meta, ok := fields["metadata"].(map[string]any)
	if !ok && oldMeta != nil {
		return nil, errors.New("metadata: must be an object")
	}
	for _, name := range []string{"name", "namespace", "uid", "creationTimestamp"} {
		if !reflect.DeepEqual(meta[name], oldMeta[name]) {
			return nil, errors.New("metadata." + name + ": must stay as it is")
		}
	}
	if managed, ok := oldMeta["managedFields"]; ok && meta["managedFields"] == nil {
		meta["managedFields"] = managed
	}
	if bytes.HasPrefix(stored, protobufPrefix) {
		return kubernetes.Encode(stored, fields)
	}
	if err := kubernetes.LosslessJSON(stored); err != nil {
		return nil, err
	}
	return json.Marshal(fields)
}

// oneObject reads YAML that is one object. Its errors have the line.
func oneObject(text string) (map[string]any, error) {
	if strings.ContainsRune(text, '&') && strings.ContainsRune(text, '*') {
		return nil, errors.New("anchors and aliases are not read here")
	}
	var document any
	if err := yaml.UnmarshalStrict([]byte(text), &document); err != nil {
		return nil, errors.New(strings.TrimPrefix(err.Error(), "yaml: "))
	}
	// By way of JSON, as what is stored: the types of numbers are the same then.
	raw, err := json.Marshal(namedFields(document))
	if err != nil {
		return nil, err
	}
	decoded, _ := decodeJSON(raw)
	fields, ok := decoded.(map[string]any)
	if !ok {
		return nil, errors.New("the text must be one object")
	}
	return fields, nil
}

// objectFields returns the fields of a stored object of Kubernetes, as decoded from JSON.
func objectFields(stored []byte) (map[string]any, error) {
	raw := stored
	if bytes.HasPrefix(stored, protobufPrefix) {
		o, err := kubernetes.Decode(stored)
		if err != nil {
			return nil, err
		}
		if raw, err = json.Marshal(o.Fields); err != nil {
			return nil, err
		}
	}
	decoded, _ := decodeJSON(raw)
	fields, ok := decoded.(map[string]any)
	if !ok {
		return nil, errors.New("it is no object")
	}
	return fields, nil
}
