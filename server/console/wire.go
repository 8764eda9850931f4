package console

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// wireDepth and wireFields bound what is shown of a message of an unknown type.
	wireDepth  = 10
	wireFields = 5000
)

// wire shows a message whose type is not known: each field by its number. Bytes that
// can be read as a message are taken for one unless they are text.
func wire(message []byte) string {
	w := &wireText{left: wireFields}
	if !w.message(message, 0) {
		w.b.WriteString("# the rest cannot be decoded\n")
	}
	return w.b.String()
}

type wireText struct {
	b    strings.Builder
	left int // fields that may be written yet
}

// message writes the fields of m, and reports whether all of it is a message.
func (w *wireText) message(m []byte, depth int) bool {
	for len(m) > 0 {
		number, kind, n := protowire.ConsumeTag(m)
		if n < 0 {
			return false
		}
		length := protowire.ConsumeFieldValue(number, kind, m[n:])
		if length < 0 {
			return false
		}
		if w.left--; w.left < 0 {
			w.b.WriteString("# only the first fields are shown\n")
			return true
		}
		w.field(number, kind, m[n:n+length], depth)
		m = m[n+length:]
	}
	return true
}

// field writes one field, whose value is whole.
func (w *wireText) field(number protowire.Number, kind protowire.Type, value []byte, depth int) {
	fmt.Fprintf(&w.b, "%s%d: ", strings.Repeat("  ", depth), number)
	switch kind {
	case protowire.VarintType:
		v, _ := protowire.ConsumeVarint(value)
		fmt.Fprintf(&w.b, "%d\n", v)
	case protowire.Fixed32Type:
		v, _ := protowire.ConsumeFixed32(value)
		fmt.Fprintf(&w.b, "0x%08x\n", v)
	case protowire.Fixed64Type:
		v, _ := protowire.ConsumeFixed64(value)
		fmt.Fprintf(&w.b, "0x%016x\n", v)
	case protowire.BytesType:
		v, _ := protowire.ConsumeBytes(value)
		w.bytes(v, depth)
	default:
		w.b.WriteString("a group\n")
	}
}

func (w *wireText) bytes(v []byte, depth int) {
	if printable(v) {
		fmt.Fprintf(&w.b, "%q\n", v)
		return
	}
	inner := &wireText{left: w.left}
	inner.b.WriteByte('\n')
	if depth < wireDepth && inner.message(v, depth+1) {
		w.left = inner.left
		w.b.WriteString(inner.b.String())
		return
	}
	fmt.Fprintf(&w.b, "%x\n", v)
}
