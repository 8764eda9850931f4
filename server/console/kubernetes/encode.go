package kubernetes

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

var (
	// ErrUnknownFields: an object has fields that the schema does not know, which a new encoding would lose.
	ErrUnknownFields = errors.New("the object has fields that sqlbrain does not know, and that would be lost")
	errNotUnicode    = errors.New("the object has text that is not Unicode, and that would be changed")
)

// Encode returns an object that begins with Prefix, with other fields, as encoding/json or YAML decodes them. Its type
// must stay. Errors name the field: one that its kind does not have, or that has another type.
func Encode(value []byte, fields map[string]any) ([]byte, error) {
	s, err := load()
	if err != nil {
		return nil, err
	}
	envelope, err := s.unmarshal(s.envelope, value[min(len(Prefix), len(value)):])
	if err != nil {
		return nil, err
	}
	o := s.object(envelope)
	m, ok := s.kinds[typeName{o.APIVersion, o.Kind}]
	switch {
	case !ok:
		return nil, ErrUnknownKind
	case fields["apiVersion"] != o.APIVersion || fields["kind"] != o.Kind:
		return nil, fmt.Errorf("the type must stay %s %s", o.APIVersion, o.Kind)
	}
	old, err := s.unmarshal(m, o.Raw)
	if err != nil {
		return nil, err
	}
	if err := lossless(old); err != nil {
		return nil, err
	}
	content := dynamicpb.NewMessage(m.desc)
	if err := m.fill(content, fields, "", "apiVersion", "kind"); err != nil {
		return nil, err
	}
	raw, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(content)
	if err != nil {
		return nil, err
	}
	envelope.Set(s.envelope.field("raw").desc, protoreflect.ValueOfBytes(raw))
	out, err := proto.MarshalOptions{Deterministic: true, AllowPartial: true}.Marshal(envelope.Interface())
	return append([]byte(Prefix), out...), err
}

// lossless returns an error if a message, or one in it, has what a new encoding would lose or change.
func lossless(m protoreflect.Message) (err error) {
	if len(m.GetUnknown()) > 0 {
		return ErrUnknownFields
	}
	_, holdsJSON := Special[m.Descriptor().FullName()] // if it has bytes
	check := func(f protoreflect.FieldDescriptor, v protoreflect.Value) {
		switch {
		case err != nil:
		case f.Message() != nil:
			err = lossless(v.Message())
		case f.Kind() == protoreflect.StringKind && !utf8.ValidString(v.String()):
			err = errNotUnicode
		case f.Kind() == protoreflect.BytesKind && holdsJSON:
			err = LosslessJSON(v.Bytes())
		}
	}
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case f.IsMap():
			v.Map().Range(func(key protoreflect.MapKey, item protoreflect.Value) bool {
				check(f.MapKey(), key.Value())
				check(f.MapValue(), item)
				return err == nil
			})
		case f.IsList():
			for i := range v.List().Len() {
				check(f, v.List().Get(i))
			}
		default:
			check(f, v)
		}
		return err == nil
	})
	return err
}

// LosslessJSON returns an error if JSON has what decoding loses or changes: a name twice, or text that is not Unicode.
func LosslessJSON(raw []byte) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	replaced, err := losslessValue(d)
	if err == nil && replaced != bytes.Count(raw, []byte("\ufffd")) {
		err = errNotUnicode
	}
	return err
}

// losslessValue reads one value. It counts the replacement characters, which decoding puts in place of what is not
// Unicode.
func losslessValue(d *json.Decoder) (replaced int, err error) {
	token, err := d.Token()
	if text, ok := token.(string); ok {
		return strings.Count(text, "\ufffd"), err
	}
	if _, ok := token.(json.Delim); !ok {
		return 0, err
	}
	names := map[string]bool{}
	for d.More() {
		if token == json.Delim('{') {
			token, err := d.Token()
			if err != nil {
				return 0, err
			}
			name := token.(string)
			if names[name] {
				return 0, fmt.Errorf("the object has the field %s twice", name)
			}
			names[name] = true
			replaced += strings.Count(name, "\ufffd")
		}
		n, err := losslessValue(d)
		if err != nil {
			return 0, err
		}
		replaced += n
	}
	_, err = d.Token() // the end
	return replaced, err
}

// names returns the fields that JSON has of a message, those of inlined messages included.
func (m *message) names() (names []string) {
	for _, f := range m.fields {
		if f.rule&Inline != 0 && !m.list {
			names = append(names, f.message.names()...)
		} else {
			names = append(names, f.desc.JSONName())
		}
	}
	return names
}

// fill sets the fields of a message. at is where it is in the object; others are fields that belong to no message.
func (m *message) fill(to protoreflect.Message, fields map[string]any, at string, others ...string) error {
	known := append(m.names(), others...)
	for name := range fields {
		if !slices.Contains(known, name) {
			return fmt.Errorf("%s: there is no such field", path(at, name))
		}
	}
	for _, f := range m.fields {
		if f.rule&Inline != 0 {
			part := map[string]any{}
			for _, name := range f.message.names() {
				if value, ok := fields[name]; ok {
					part[name] = value
				}
			}
			if len(part) == 0 {
				continue
			}
			if err := f.message.fill(to.Mutable(f.desc).Message(), part, at); err != nil {
				return err
			}
			continue
		}
		value, name := fields[f.desc.JSONName()], path(at, f.desc.JSONName())
		if value == nil || len(others) > 0 && slices.Contains(others, f.desc.JSONName()) {
			continue
		}
		if err := f.set(to, value, name); err != nil {
			return err
		}
	}
	return nil
}

func path(at, name string) string { return strings.TrimPrefix(at+"."+name, ".") }

func (f *field) set(to protoreflect.Message, value any, at string) error {
	switch {
	case f.desc.IsMap():
		items, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("%s: must be an object", at)
		}
		values := to.Mutable(f.desc).Map()
		for name, item := range items {
			v, err := f.item(f.desc.MapValue(), values.NewValue, item, path(at, name))
			if err != nil {
				return err
			}
			values.Set(protoreflect.ValueOfString(name).MapKey(), v)
		}
		return nil
	case f.desc.IsList():
		return f.setList(to.Mutable(f.desc).List(), value, at)
	default:
		v, err := f.item(f.desc, func() protoreflect.Value { return to.NewField(f.desc) }, value, at)
		if err == nil {
			to.Set(f.desc, v)
		}
		return err
	}
}

func (f *field) setList(list protoreflect.List, value any, at string) error {
	items, ok := value.([]any)
	if !ok {
		return fmt.Errorf("%s: must be a list", at)
	}
	for i, item := range items {
		v, err := f.item(f.desc, list.NewElement, item, fmt.Sprintf("%s[%d]", at, i))
		if err != nil {
			return err
		}
		list.Append(v)
	}
	return nil
}

// item returns one value of a field, of its list or of its map: desc has its type, and empty makes an empty one.
func (f *field) item(desc protoreflect.FieldDescriptor, empty func() protoreflect.Value, value any,
	at string) (protoreflect.Value, error) {
	m := f.message
	if m == nil {
		v, err := scalar(desc.Kind(), value)
		if err != nil {
			return v, fmt.Errorf("%s: %w", at, err)
		}
		return v, nil
	}
	out := empty()
	if value == nil {
		return out, nil
	}
	if read, ok := specials[m.desc.FullName()]; ok {
		if err := read(out.Message(), value); err != nil {
			return out, fmt.Errorf("%s: %w", at, err)
		}
		return out, nil
	}
	if m.list {
		return out, m.fields[0].setList(out.Message().Mutable(m.fields[0].desc).List(), value, at)
	}
	fields, ok := value.(map[string]any)
	if !ok {
		return out, fmt.Errorf("%s: must be an object", at)
	}
	return out, m.fill(out.Message(), fields, at)
}

func scalar(kind protoreflect.Kind, value any) (protoreflect.Value, error) {
	switch kind {
	case protoreflect.StringKind:
		if s, ok := value.(string); ok {
			return protoreflect.ValueOfString(s), nil
		}
		return protoreflect.Value{}, errors.New("must be text: put it in quotes")
	case protoreflect.BoolKind:
		if b, ok := value.(bool); ok {
			return protoreflect.ValueOfBool(b), nil
		}
		return protoreflect.Value{}, errors.New("must be true or false")
	case protoreflect.BytesKind:
		s, _ := value.(string)
		raw, err := base64.StdEncoding.DecodeString(s)
		if _, ok := value.(string); !ok || err != nil {
			return protoreflect.Value{}, errors.New("must be base64")
		}
		return protoreflect.ValueOfBytes(raw), nil
	case protoreflect.DoubleKind, protoreflect.FloatKind:
		text := fmt.Sprint(value)
		if _, quoted := value.(string); quoted {
			return protoreflect.Value{}, errNumber
		}
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return protoreflect.Value{}, errNumber
		}
		if kind == protoreflect.FloatKind {
			return protoreflect.ValueOfFloat32(float32(n)), nil
		}
		return protoreflect.ValueOfFloat64(n), nil
	}
	n, err := integer(value)
	switch {
	case err != nil:
		return protoreflect.Value{}, err
	case kind == protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(n), nil
	case kind == protoreflect.Int32Kind && n == int64(int32(n)):
		return protoreflect.ValueOfInt32(int32(n)), nil
	case kind == protoreflect.Uint32Kind && n == int64(uint32(n)):
		return protoreflect.ValueOfUint32(uint32(n)), nil
	case kind == protoreflect.Uint64Kind && n >= 0:
		return protoreflect.ValueOfUint64(uint64(n)), nil
	}
	return protoreflect.Value{}, errors.New("is out of range")
}

var (
	errNumber = errors.New("must be a number")
	errWhole  = errors.New("must be a whole number")
)

func integer(value any) (int64, error) {
	switch n := value.(type) {
	case int:
		return int64(n), nil
	case int64:
		return n, nil
	case uint64:
		if n > math.MaxInt64 {
			return 0, errWhole
		}
		return int64(n), nil
	case float64:
		if n != math.Trunc(n) || math.Abs(n) > 1<<53 {
			return 0, errWhole
		}
		return int64(n), nil
	case json.Number:
		i, err := n.Int64()
		if err != nil {
			return 0, errWhole
		}
		return i, nil
	}
	return 0, errWhole
}

// specials are the inverse of Special.
var specials = map[protoreflect.FullName]func(protoreflect.Message, any) error{
	"k8s.io.apimachinery.pkg.api.resource.Quantity":   readQuantity,
	"k8s.io.apimachinery.pkg.apis.meta.v1.Duration":   readDuration,
	"k8s.io.apimachinery.pkg.apis.meta.v1.FieldsV1":   readRaw,
	"k8s.io.apimachinery.pkg.apis.meta.v1.MicroTime":  readTime,
	"k8s.io.apimachinery.pkg.apis.meta.v1.Time":       readTime,
	"k8s.io.apimachinery.pkg.runtime.RawExtension":    readRaw,
	"k8s.io.apimachinery.pkg.util.intstr.IntOrString": readIntOrString,
}

func setNamed(m protoreflect.Message, name protoreflect.Name, value any) {
	m.Set(m.Descriptor().Fields().ByName(name), protoreflect.ValueOf(value))
}

// quantity is how Kubernetes writes quantities.
var quantity = regexp.MustCompile(`^[+-]?(\d+(\.\d*)?|\.\d+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?\d+)?$`)

func readQuantity(m protoreflect.Message, value any) error {
	text, isText := value.(string)
	if !isText {
		text = fmt.Sprint(value)
	}
	if !quantity.MatchString(text) {
		return errors.New("must be a quantity, as 500m or 2Gi")
	}
	setNamed(m, "string", text)
	return nil
}

func readDuration(m protoreflect.Message, value any) error {
	text, _ := value.(string)
	d, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("must be a duration, as 1m30s")
	}
	setNamed(m, "duration", int64(d))
	return nil
}

func readTime(m protoreflect.Message, value any) error {
	text, _ := value.(string)
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return errors.New("must be a time, as 2006-01-02T15:04:05Z")
	}
	setNamed(m, "seconds", t.Unix())
	setNamed(m, "nanos", int32(t.Nanosecond()))
	return nil
}

func readIntOrString(m protoreflect.Message, value any) error {
	if text, ok := value.(string); ok {
		setNamed(m, "type", int64(1))
		setNamed(m, "strVal", text)
		return nil
	}
	v, err := scalar(protoreflect.Int32Kind, value)
	if err != nil {
		return errors.New("must be a whole number or text")
	}
	setNamed(m, "type", int64(0))
	setNamed(m, "intVal", v.Interface().(int32))
	return nil
}

func readRaw(m protoreflect.Message, value any) error {
	raw, err := json.Marshal(value)
	if err != nil {
		return err
	}
	m.Set(m.Descriptor().Fields().ByNumber(1), protoreflect.ValueOfBytes(raw))
	return nil
}
