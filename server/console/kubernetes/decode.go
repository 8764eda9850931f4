package kubernetes

import (
	"bytes"
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Prefix begins every object that kube-apiserver stores in protobuf. An envelope follows, the message
// runtime.Unknown, which names the type of the object and holds it.
const Prefix = "k8s\x00"

const (
	// maxDepth bounds how deep messages may be nested. The deepest type of Kubernetes has about 15 levels.
	maxDepth = 50
	// maxValues bounds the values of an object: each takes up to 1 KiB of memory until it is YAML, and two bytes of a
	// message can be a dozen of them.
	maxValues = 100_000
)

var (
	// ErrUnknownKind: no schema is known for the object's kind. Its type and its bytes are known.
	ErrUnknownKind = errors.New("unknown kind")
	// ErrNoJSON: the object is whole, but has no form in JSON, or is too large to be decoded.
	ErrNoJSON = errors.New("no JSON")
)

// Object is a stored object.
type Object struct {
	APIVersion, Kind string
	// Raw is the object in protobuf, without its envelope.
	Raw []byte
	// Fields are what encoding/json would decode from the object's JSON. Numbers are int64, float64 or
	// json.Number.
	Fields map[string]any
}

// Decode decodes an object that begins with Prefix. If the envelope cannot be decoded, the object is nil.
// If only its content cannot, Fields is nil and the error says why: ErrUnknownKind, ErrNoJSON, or another error
// if the object is damaged.
func Decode(value []byte) (*Object, error) {
	s, err := load()
	if err != nil {
		return nil, err
	}
	o, err := s.open(value)
	if err != nil {
		return nil, err
	}
	if o.APIVersion == "" || o.Kind == "" {
		return o, errors.New("its version or its kind is missing")
	}
	m, ok := s.kinds[typeName{o.APIVersion, o.Kind}]
	if !ok {
		return o, ErrUnknownKind
	}
	content, err := s.unmarshal(m, o.Raw)
	if err != nil {
		return o, err
	}
	fields := map[string]any{"apiVersion": o.APIVersion, "kind": o.Kind}
	if err := m.addTo(fields, content); err != nil {
		return o, err
	}
	o.Fields = fields
	return o, nil
}

// TypeOf returns the type of an object that begins with Prefix, as its envelope says; empty if that is damaged.
func TypeOf(value []byte) (apiVersion, kind string) {
	s, err := load()
	if err != nil {
		return "", ""
	}
	o, err := s.open(value)
	if err != nil {
		return "", ""
	}
	return o.APIVersion, o.Kind
}

// open decodes the envelope.
func (s *schema) open(value []byte) (*Object, error) {
	envelope, err := s.unmarshal(s.envelope, bytes.TrimPrefix(value, []byte(Prefix)))
	if err != nil {
		return nil, err
	}
	return s.object(envelope), nil
}

// object returns what an envelope says and holds.
func (s *schema) object(envelope protoreflect.Message) *Object {
	typeMeta := s.envelope.get(envelope, "typeMeta").Message()
	typeOf := s.envelope.field("typeMeta").message
	return &Object{
		APIVersion: typeOf.get(typeMeta, "apiVersion").String(), Kind: typeOf.get(typeMeta, "kind").String(),
		Raw: s.envelope.get(envelope, "raw").Bytes(),
	}
}

func (s *schema) unmarshal(m *message, raw []byte) (protoreflect.Message, error) {
	left := maxValues
	if err := s.check(m.desc, raw, 0, &left); err != nil {
		return nil, err
	}
	out := dynamicpb.NewMessage(m.desc)
	return out, proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(raw, out)
}

// check returns an error if raw is nested too deeply, has more values than *left, from which it deducts them,
// or has a known field in an encoding that is not the field's. It ignores unknown fields, as the types of
// Kubernetes do: a later version may have added them.
func (s *schema) check(desc protoreflect.MessageDescriptor, raw []byte, depth int, left *int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: nested too deeply", ErrNoJSON)
	}
	*left -= s.empty[desc.FullName()]
	for len(raw) > 0 {
		number, encoding, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		raw = raw[n:]
		n = protowire.ConsumeFieldValue(number, encoding, raw)
		if n < 0 {
			return protowire.ParseError(n)
		}
		value := raw[:n]
		raw = raw[n:]
		if !desc.IsMapEntry() {
			*left--
		}
		f := desc.Fields().ByNumber(number)
		if f == nil {
			continue
		}
		want := encodingOf(f.Kind())
		if packed := f.IsList() && encoding == protowire.BytesType && want != protowire.BytesType; packed {
			*left -= len(value) // as many values, or fewer
			continue
		}
		if encoding != want {
			return fmt.Errorf("field %s has the wrong wire type %d", f.FullName(), encoding)
		}
		if f.Message() != nil {
			inner, _ := protowire.ConsumeBytes(value)
			if err := s.check(f.Message(), inner, depth+1, left); err != nil {
				return err
			}
		}
	}
	if *left < 0 {
		return fmt.Errorf("%w: more than %d values", ErrNoJSON, maxValues)
	}
	return nil
}

// encodingOf returns how values of a kind are written. The types of Kubernetes have no other kinds.
func encodingOf(kind protoreflect.Kind) protowire.Type {
	switch kind {
	case protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.Uint32Kind, protoreflect.Uint64Kind,
		protoreflect.BoolKind:
		return protowire.VarintType
	case protoreflect.DoubleKind:
		return protowire.Fixed64Type
	case protoreflect.FloatKind:
		return protowire.Fixed32Type
	default:
		return protowire.BytesType
	}
}
