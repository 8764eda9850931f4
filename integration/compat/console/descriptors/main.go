// Descriptors writes the compressed descriptor set by which server/console/kubernetes decodes objects of
// Kubernetes, to the file that its argument names.
//
// The messages are those of the .proto files in k8s.io/api and k8s.io/apimachinery, in the versions of this
// module. From the Go types it adds which kinds exist and how encoding/json writes each field. Messages that no
// kind uses are left out.
package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/sqlbrain/sqlbrain/server/console/kubernetes"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: descriptors FILE")
	}
	set, err := generate(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	var b bytes.Buffer
	w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression) // the level is valid
	if _, err := w.Write(set); err != nil {
		log.Fatal(err)
	}
	if err := w.Close(); err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(os.Args[1], b.Bytes(), 0o644); err != nil {
		log.Fatal(err)
	}
}

// generate returns the descriptor set, not compressed. It is the same each time.
func generate(ctx context.Context) ([]byte, error) {
	g, err := compile(ctx)
	if err != nil {
		return nil, err
	}
	kinds := map[string]reflect.Type{}
	for kind, t := range scheme.Scheme.AllKnownTypes() {
		if kind.Version != runtime.APIVersionInternal {
			kinds[kind.GroupVersion().String()+" "+kind.Kind] = t
		}
	}
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		if err := g.kind(name, kinds[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	for _, envelope := range []reflect.Type{reflect.TypeFor[runtime.Unknown](), reflect.TypeFor[runtime.TypeMeta]()} {
		g.seen[nameOf(envelope)] = envelope
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(g.used())
}

type generator struct {
	files    []*descriptorpb.FileDescriptorProto
	messages map[protoreflect.FullName]*descriptorpb.DescriptorProto
	seen     map[protoreflect.FullName]reflect.Type
}

// compile reads the .proto files of Kubernetes' modules.
func compile(ctx context.Context) (*generator, error) {
	modules := []string{"k8s.io/api", "k8s.io/apimachinery"}
	out, err := exec.CommandContext(ctx, "go", append([]string{"list", "-m", "-f", "{{.Dir}}"}, modules...)...).Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	folders := map[string]string{}
	var names []string
	for i, folder := range strings.Fields(string(out)) {
		folders[modules[i]] = folder
		err := filepath.WalkDir(folder, func(path string, _ os.DirEntry, err error) error {
			if err == nil && strings.HasSuffix(path, ".proto") && !strings.Contains(path, "testapigroup") {
				names = append(names, modules[i]+filepath.ToSlash(strings.TrimPrefix(path, folder)))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	compiler := protocompile.Compiler{Resolver: &protocompile.SourceResolver{Accessor: func(path string) (io.ReadCloser,
		error) {
		for module, folder := range folders {
			if rest, ok := strings.CutPrefix(path, module+"/"); ok {
				return os.Open(filepath.Join(folder, rest))
			}
		}
		return nil, os.ErrNotExist
	}}}
	slices.Sort(names)
	compiled, err := compiler.Compile(ctx, names...)
	if err != nil {
		return nil, err
	}
	g := &generator{messages: map[protoreflect.FullName]*descriptorpb.DescriptorProto{},
		seen: map[protoreflect.FullName]reflect.Type{}}
	for _, file := range compiled {
		p := protodesc.ToFileDescriptorProto(file)
		p.Options = nil
		g.files = append(g.files, p)
		for _, m := range p.MessageType {
			g.messages[protoreflect.FullName(p.GetPackage()).Append(protoreflect.Name(m.GetName()))] = m
		}
	}
	return g, nil
}

func nameOf(t reflect.Type) protoreflect.FullName {
	return protoreflect.FullName(strings.ReplaceAll(t.PkgPath(), "/", ".")).Append(protoreflect.Name(t.Name()))
}

// kind adds a type that the API stores. Types that are not stored, such as watch events, have no TypeMeta.
func (g *generator) kind(name string, t reflect.Type) error {
	if f, ok := t.FieldByName("TypeMeta"); !ok || f.Type != reflect.TypeFor[metav1.TypeMeta]() {
		return nil
	}
	message := nameOf(t)
	if err := g.message(t, message); err != nil {
		return err
	}
	m := g.messages[message]
	if m.Options == nil {
		m.Options = &descriptorpb.MessageOptions{}
	}
	unknown := m.Options.ProtoReflect().GetUnknown()
	unknown = protowire.AppendTag(unknown, kubernetes.KindOption, protowire.BytesType)
	m.Options.ProtoReflect().SetUnknown(protowire.AppendString(unknown, name))
	return nil
}

// message adds to a message what its Go type knows.
func (g *generator) message(t reflect.Type, name protoreflect.FullName) error {
	if was, ok := g.seen[name]; ok {
		if was != t {
			return fmt.Errorf("%s is of both %s and %s", name, was, t)
		}
		return nil
	}
	g.seen[name] = t
	m, ok := g.messages[name]
	if !ok {
		return fmt.Errorf("no message %s", name)
	}
	_, special := kubernetes.Special[name]
	switch marshals := t.Implements(reflect.TypeFor[json.Marshaler]()) ||
		reflect.PointerTo(t).Implements(reflect.TypeFor[json.Marshaler]()); {
	case special != marshals:
		return fmt.Errorf("%s has custom JSON: %v; the console has a special case: %v", t, marshals, special)
	case special:
		return nil
	case t.Kind() == reflect.Slice:
		if len(m.Field) != 1 || t.Elem().Kind() != reflect.String {
			return fmt.Errorf("%s is not a list of strings", t)
		}
		setRule(m.Field[0], kubernetes.Inline)
		return nil
	case t.Kind() != reflect.Struct:
		return fmt.Errorf("%s is not a struct", t)
	}
	known := 0
	for i := range t.NumField() {
		f := t.Field(i)
		tag := strings.Split(f.Tag.Get("protobuf"), ",")
		if len(tag) < 2 {
			if f.Type != reflect.TypeFor[metav1.TypeMeta]() && f.Tag.Get("json") != "-" {
				return fmt.Errorf("%s.%s is not in protobuf", t, f.Name)
			}
			continue
		}
		number, err := strconv.Atoi(tag[1])
		if err != nil {
			return fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
		at := slices.IndexFunc(m.Field, func(d *descriptorpb.FieldDescriptorProto) bool {
			return int(d.GetNumber()) == number
		})
		if at < 0 {
			return fmt.Errorf("%s has no field %d", name, number)
		}
		known++
		if err := g.field(m, m.Field[at], f); err != nil {
			return fmt.Errorf("%s.%s: %w", t, f.Name, err)
		}
	}
	if known != len(m.Field) {
		return fmt.Errorf("%s has fields that %s does not have", name, t)
	}
	return nil
}

// field sets the JSON name and the rule of a field, and adds the message that it holds.
func (g *generator) field(m *descriptorpb.DescriptorProto, d *descriptorpb.FieldDescriptorProto,
	f reflect.StructField) error {
	name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
	has := func(option string) bool { return slices.Contains(strings.Split(options, ","), option) }
	var rule kubernetes.Rule
	t := f.Type
	if t.Kind() == reflect.Pointer {
		rule |= kubernetes.Pointer
		t = t.Elem()
	}
	switch zero := has("omitzero"); {
	case name == "" && f.Anonymous:
		rule |= kubernetes.Inline
	case name == "" || name == "-":
		return fmt.Errorf("has no name in JSON")
	case zero && t != reflect.TypeFor[metav1.Time]():
		return fmt.Errorf("omitzero of %s, which the console does not know", t)
	case !has("omitempty") && !zero, t.Kind() == reflect.Struct && rule&kubernetes.Pointer == 0 && !zero:
		rule |= kubernetes.Always
	}
	if rule&kubernetes.Inline == 0 {
		d.JsonName = proto.String(name)
	}
	setRule(d, rule)
	if d.GetTypeName() == "" {
		return nil
	}
	held := d
	for _, entry := range m.NestedType { // of maps
		if strings.HasSuffix(d.GetTypeName(), "."+m.GetName()+"."+entry.GetName()) {
			if key := entry.Field[0]; key.GetType() != descriptorpb.FieldDescriptorProto_TYPE_STRING {
				return fmt.Errorf("keys of %s", key.GetType())
			}
			if held = entry.Field[1]; held.GetTypeName() == "" {
				return nil
			}
		}
	}
	if repeated := d.GetLabel() == descriptorpb.FieldDescriptorProto_LABEL_REPEATED; repeated {
		t = t.Elem()
		if t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return g.message(t, protoreflect.FullName(strings.TrimPrefix(held.GetTypeName(), ".")))
}

func setRule(d *descriptorpb.FieldDescriptorProto, rule kubernetes.Rule) {
	d.Options = nil
	if rule == 0 {
		return
	}
	d.Options = &descriptorpb.FieldOptions{}
	d.Options.ProtoReflect().SetUnknown(protowire.AppendVarint(protowire.AppendTag(nil, kubernetes.RuleOption,
		protowire.VarintType), uint64(rule)))
}

// used returns the files without the messages that no kind uses.
func (g *generator) used() *descriptorpb.FileDescriptorSet {
	set := &descriptorpb.FileDescriptorSet{}
	fileOf := map[string]string{}
	for _, file := range g.files {
		file.MessageType = slices.DeleteFunc(file.MessageType, func(m *descriptorpb.DescriptorProto) bool {
			name := protoreflect.FullName(file.GetPackage()).Append(protoreflect.Name(m.GetName()))
			_, ok := g.seen[name]
			fileOf["."+string(name)] = file.GetName()
			return !ok
		})
		if len(file.MessageType) > 0 {
			set.File = append(set.File, file)
		}
	}
	for _, file := range set.File {
		imports := map[string]bool{}
		for _, m := range file.MessageType {
			for _, part := range append([]*descriptorpb.DescriptorProto{m}, m.NestedType...) {
				for _, f := range part.Field {
					if other := fileOf[f.GetTypeName()]; other != "" && other != file.GetName() {
						imports[other] = true
					}
				}
			}
		}
		file.Dependency = slices.Sorted(maps.Keys(imports))
	}
	return set
}
