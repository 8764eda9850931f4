package kubernetes

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"io"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

//go:generate go -C ../../../integration run ./compat/console/descriptors ../server/console/kubernetes/kinds.binpb.gz

// Options that the descriptor set has in addition to protobuf's own. Their numbers are of the range that
// protobuf leaves to private use.
const (
	// KindOption is an option of messages, repeated: a type that is stored as the message, as "apps/v1 Deployment".
	KindOption protowire.Number = 52100
	// RuleOption is an option of fields: a Rule.
	RuleOption protowire.Number = 52101
)

// Rule says how encoding/json treats a field of a Go type. The zero Rule leaves out empty values.
type Rule uint64

const (
	// Always: the field is written even if it is empty: no omitempty.
	Always Rule = 1 << iota
	// Pointer: the field is empty only if it is absent.
	Pointer
	// Inline: the fields of the message belong to the message around it. On the only field of a message, a
	// list: the message is that list.
	Inline
)

//go:embed kinds.binpb.gz
var descriptors []byte

const (
	envelopeName = "k8s.io.apimachinery.pkg.runtime.Unknown"
	// maxDescriptors bounds the uncompressed descriptor set, in bytes.
	maxDescriptors = 16 << 20
)

type typeName struct{ version, kind string }

// schema is what is known of the types of Kubernetes.
type schema struct {
	kinds    map[typeName]*message
	envelope *message
	messages map[protoreflect.FullName]*message
	// empty is how many values an empty message is in JSON, without itself.
	empty map[protoreflect.FullName]int
}

type message struct {
	desc   protoreflect.MessageDescriptor
	fields []*field
	// list: the message stands for its only field.
	list bool
}

type field struct {
	desc    protoreflect.FieldDescriptor
	rule    Rule
	message *message // of the field, of its items or of its map's values; nil: they are scalars
}

// load builds the schema when the first object is decoded: few servers show one.
var load = sync.OnceValues(func() (*schema, error) {
	r, err := gzip.NewReader(bytes.NewReader(descriptors))
	if err != nil {
		return nil, fmt.Errorf("embedded descriptor set: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(r, maxDescriptors))
	if err != nil {
		return nil, fmt.Errorf("embedded descriptor set: %w", err)
	}
	var set descriptorpb.FileDescriptorSet
	// The options stay unknown fields, whatever extensions other packages have registered.
	if err := (proto.UnmarshalOptions{Resolver: new(protoregistry.Types)}).Unmarshal(raw, &set); err != nil {
		return nil, fmt.Errorf("embedded descriptor set: %w", err)
	}
	files, err := protodesc.NewFiles(&set)
	if err != nil {
		return nil, fmt.Errorf("embedded descriptor set: %w", err)
	}
	s := &schema{kinds: map[typeName]*message{}, messages: map[protoreflect.FullName]*message{},
		empty: map[protoreflect.FullName]int{}}
	files.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		for i := range file.Messages().Len() {
			s.message(file.Messages().Get(i))
		}
		return true
	})
	for name, m := range s.messages {
		s.empty[name] = m.empty()
	}
	if s.envelope = s.messages[envelopeName]; s.envelope == nil {
		return nil, fmt.Errorf("embedded descriptor set: no %s", envelopeName)
	}
	return s, nil
})

func (s *schema) message(desc protoreflect.MessageDescriptor) *message {
	if m, ok := s.messages[desc.FullName()]; ok {
		return m
	}
	m := &message{desc: desc}
	s.messages[desc.FullName()] = m
	for _, kind := range options(desc, KindOption) {
		version, name, _ := strings.Cut(string(kind), " ")
		s.kinds[typeName{version, name}] = m
	}
	for i := range desc.Fields().Len() {
		f := &field{desc: desc.Fields().Get(i)}
		for _, rule := range options(f.desc, RuleOption) {
			n, _ := protowire.ConsumeVarint(rule)
			f.rule = Rule(n)
		}
		switch value := f.desc; {
		case value.IsMap():
			if value = value.MapValue(); value.Message() != nil {
				f.message = s.message(value.Message())
			}
		case value.Message() != nil:
			f.message = s.message(value.Message())
		}
		m.list = f.desc.IsList() && f.rule&Inline != 0
		m.fields = append(m.fields, f)
	}
	return m
}

// options returns the values of an option that protobuf does not know: the bytes of strings, or numbers as they
// are encoded.
func options(desc protoreflect.Descriptor, option protowire.Number) (values [][]byte) {
	unknown := desc.Options().ProtoReflect().GetUnknown()
	for len(unknown) > 0 {
		number, encoding, n := protowire.ConsumeTag(unknown)
		length := protowire.ConsumeFieldValue(number, encoding, unknown[n:])
		value := unknown[n : n+length]
		unknown = unknown[n+length:]
		if encoding == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if number == option {
			values = append(values, value)
		}
	}
	return values
}

// empty returns how many values addTo adds for an empty message.
func (m *message) empty() (values int) {
	if _, special := Special[m.desc.FullName()]; special {
		return 0
	}
	for _, f := range m.fields {
		inline := f.rule&Inline != 0
		if !inline && f.rule&Always != 0 {
			values++
		}
		if (inline || f.rule&Always != 0) && f.message != nil && !f.nilable() {
			values += f.message.empty()
		}
	}
	return values
}

func (m *message) field(name string) *field {
	for _, f := range m.fields {
		if f.desc.JSONName() == name {
			return f
		}
	}
	panic(fmt.Sprintf("console/kubernetes: %s has no field %s", m.desc.FullName(), name))
}

func (m *message) get(of protoreflect.Message, name string) protoreflect.Value {
	return of.Get(m.field(name).desc)
}
