package kubernetes

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// Special are the messages whose Go types implement json.Marshaler. Their fields have the names of the .proto files.
var Special = map[protoreflect.FullName]func(protoreflect.Message) (any, error){
	"k8s.io.apimachinery.pkg.api.resource.Quantity":   quantityJSON,
	"k8s.io.apimachinery.pkg.apis.meta.v1.Duration":   durationJSON,
	"k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1":   rawJSON,
	"k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime":  timeJSON("2006-01-02T15:04:05.000000Z07:00"),
	"k8s.io.apimachinery.pkg.apis.meta.v1.Time":       timeJSON(time.RFC3339),
	"k8s.io.apimachinery.pkg.runtime.RawExtension":    rawJSON,
	"k8s.io.apimachinery.pkg.util.intstr.IntOrString": intOrStringJSON,
}

// addTo adds the fields of a message to those of its JSON.
func (m *message) addTo(fields map[string]any, from protoreflect.Message) error {
	for _, f := range m.fields {
		if f.rule&Inline != 0 {
			if f.rule&Pointer != 0 && !from.Has(f.desc) {
				continue
			}
			if err := f.message.addTo(fields, from.Get(f.desc).Message()); err != nil {
				return err
			}
			continue
		}
		if f.rule&Always == 0 && f.empty(from) {
			continue
		}
		value, err := f.json(from)
		if err != nil {
			return err
		}
		fields[f.desc.JSONName()] = value
	}
	return nil
}

// empty reports whether omitempty, or omitzero of a struct, leaves the field out.
func (f *field) empty(from protoreflect.Message) bool {
	if !from.Has(f.desc) {
		return true
	}
	if f.rule&Pointer != 0 || f.desc.IsList() || f.desc.IsMap() {
		return false
	}
	value := from.Get(f.desc)
	switch {
	case f.message != nil:
		empty := true
		value.Message().Range(func(protoreflect.FieldDescriptor, protoreflect.Value) bool {
			empty = false
			return false
		})
		return empty
	case f.desc.Kind() == protoreflect.BytesKind:
		return len(value.Bytes()) == 0
	default:
		return value.Equal(f.desc.Default())
	}
}

// json returns the JSON of the field. An absent struct is the JSON of an empty one.
func (f *field) json(from protoreflect.Message) (any, error) {
	if !from.Has(f.desc) && f.nilable() {
		return nil, nil
	}
	value := from.Get(f.desc)
	switch {
	case f.desc.IsMap():
		out := make(map[string]any, value.Map().Len())
		var err error
		value.Map().Range(func(key protoreflect.MapKey, item protoreflect.Value) bool {
			out[key.String()], err = itemJSON(f.message, item)
			return err == nil
		})
		return out, err
	case f.desc.IsList():
		return listJSON(f, value.List())
	default:
		return itemJSON(f.message, value)
	}
}

// nilable reports whether the Go type of the field is nil if the field is absent.
func (f *field) nilable() bool {
	return f.rule&Pointer != 0 || f.desc.IsList() || f.desc.IsMap() || f.desc.Kind() == protoreflect.BytesKind ||
		f.message != nil && f.message.list
}

func listJSON(f *field, list protoreflect.List) (any, error) {
	out := make([]any, list.Len())
	var err error
	for i := range out {
		if out[i], err = itemJSON(f.message, list.Get(i)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// itemJSON returns the JSON of one value: of the message m or, if that is nil, of a scalar. Lists and maps
// have separate functions.
func itemJSON(m *message, value protoreflect.Value) (any, error) {
	if m == nil {
		switch v := value.Interface().(type) {
		case int32:
			return int64(v), nil
		case []byte:
			return base64.StdEncoding.EncodeToString(v), nil
		default:
			return v, nil
		}
	}
	if special, ok := Special[m.desc.FullName()]; ok {
		return special(value.Message())
	}
	if m.list {
		return listJSON(m.fields[0], value.Message().Get(m.fields[0].desc).List())
	}
	fields := map[string]any{}
	return fields, m.addTo(fields, value.Message())
}

func named(m protoreflect.Message, name protoreflect.Name) (value protoreflect.Value, has bool) {
	f := m.Descriptor().Fields().ByName(name)
	return m.Get(f), m.Has(f)
}

// timeJSON writes times in a layout, and null for an empty message, which is the zero time.
func timeJSON(layout string) func(m protoreflect.Message) (any, error) {
	return func(m protoreflect.Message) (any, error) {
		seconds, hasSeconds := named(m, "seconds")
		nanos, hasNanos := named(m, "nanos")
		if !hasSeconds && !hasNanos {
			return nil, nil
		}
		t := time.Unix(seconds.Int(), nanos.Int()).UTC()
		if t.IsZero() {
			return nil, nil
		}
		return t.Format(layout), nil
	}
}

func durationJSON(m protoreflect.Message) (any, error) {
	d, _ := named(m, "duration")
	return time.Duration(d.Int()).String(), nil
}

// quantityJSON: Kubernetes writes quantities in their canonical form.
func quantityJSON(m protoreflect.Message) (any, error) {
	s, has := named(m, "string")
	if !has {
		return "0", nil
	}
	return s.String(), nil
}

func intOrStringJSON(m protoreflect.Message) (any, error) {
	kind, _ := named(m, "type")
	number, _ := named(m, "intVal")
	text, _ := named(m, "strVal")
	switch kind.Int() {
	case 0:
		return number.Int(), nil
	case 1:
		return text.String(), nil
	default:
		return nil, fmt.Errorf("%w: %d is neither a number nor a string", ErrNoJSON, kind.Int())
	}
}

// rawJSON is of messages that hold JSON.
func rawJSON(m protoreflect.Message) (any, error) {
	f := m.Descriptor().Fields().ByNumber(1)
	if !m.Has(f) {
		return nil, nil
	}
	d := json.NewDecoder(bytes.NewReader(m.Get(f).Bytes()))
	d.UseNumber()
	var out any
	if err := d.Decode(&out); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrNoJSON, m.Descriptor().Name(), err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: %s: more than one value", ErrNoJSON, m.Descriptor().Name())
	}
	return out, nil
}
