package kubernetes

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
)

// errNoObject: a value is no object of Kubernetes, or kube-apiserver has encrypted it.
var errNoObject = errors.New("it is no object of Kubernetes in protobuf or JSON")

// Fields returns the fields of a stored object, in protobuf or JSON: of a custom resource, say. Errors: those of
// Decode, and one for what is no object.
func Fields(value []byte) (map[string]any, error) {
	if bytes.HasPrefix(value, []byte(Prefix)) {
		o, err := Decode(value)
		if err != nil {
			return nil, err
		}
		return o.Fields, nil
	}
	if bytes.HasPrefix(value, []byte("k8s:enc:")) {
		return nil, errors.New("kube-apiserver has encrypted it")
	}
	decoded, err := decodeJSON(value)
	fields, ok := decoded.(map[string]any)
	if err != nil || !ok {
		return nil, errNoObject
	}
	if version, kind := fields["apiVersion"], fields["kind"]; version == nil || kind == nil {
		return nil, errNoObject
	}
	return fields, nil
}

// Describe returns the type of an object, and its name with its namespace.
func Describe(fields map[string]any) (kind, name string) {
	meta, _ := fields["metadata"].(map[string]any)
	namespace, _ := meta["namespace"].(string)
	name, _ = meta["name"].(string)
	if namespace != "" {
		name = namespace + "/" + name
	}
	return strings.TrimSpace(fmt.Sprint(fields["apiVersion"], " ", fields["kind"])), name
}

// ForCreate removes from an object what the API server and its controllers set, so that kubectl create takes it:
// its status, its identity, and owners, who have another identity by now. It returns the controller that owned the
// object, empty if none did: a controller makes its objects again by itself.
func ForCreate(fields map[string]any) (controller string) {
	delete(fields, "status")
	meta, _ := fields["metadata"].(map[string]any)
	owners, _ := meta["ownerReferences"].([]any)
	for _, o := range owners {
		if owner, _ := o.(map[string]any); owner["controller"] == true {
			controller = fmt.Sprint(owner["kind"], " ", owner["name"])
		}
	}
	if fields["kind"] == "IPAddress" { // kube-apiserver makes it with its Service, and refuses that if it is there before
		spec, _ := fields["spec"].(map[string]any)
		parent, _ := spec["parentRef"].(map[string]any)
		controller = fmt.Sprint("Service ", parent["name"])
	}
	for _, name := range []string{"uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp",
		"deletionGracePeriodSeconds", "managedFields", "selfLink", "ownerReferences"} {
		delete(meta, name)
	}
	return controller
}
