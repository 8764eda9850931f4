package console

import (
	"bytes"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// hexBytes and textBytes bound what is shown of a value.
	hexBytes  = 16 << 10
	textBytes = 2 << 20
	// maxDepth bounds the nesting of what is indented: each level makes every line
	// below it longer. indentedBytes bounds what comes of it.
	maxDepth      = 100
	indentedBytes = 8 << 20
	// yamlValues bounds the values of YAML, each of which takes up to 1 KiB of memory.
	yamlValues = 100_000
)

// The kinds of values.
const (
	kindEmpty      = "empty"
	kindText       = "text"
	kindJSON       = "json"
	kindKubernetes = "kubernetes"
	kindEncrypted  = "encrypted"
	kindBinary     = "binary"
)

// view is a value in the forms in which it can be read.
type view struct {
	Kind  string `json:"kind"`
	Type  string `json:"type,omitempty"` // of a Kubernetes object: "v1 Pod"
	Bytes int    `json:"bytes"`
	// Readable is the value made readable: YAML of Kubernetes objects, indented JSON.
	Readable string `json:"readable,omitempty"`
	Text     string `json:"text,omitempty"`
	Hex      string `json:"hex,omitempty"`
	// Editable: Text is the whole value, its lines end alike, and nothing of it is hidden.
	Editable bool `json:"editable"`
	// YAML: Readable is a whole object of Kubernetes as YAML, and nothing of it but managedFields is hidden.
	YAML bool `json:"yaml"`
	// Hidden: parts of the value are hidden in Readable, and there are no other forms.
	Hidden bool   `json:"hidden"`
	Note   string `json:"note,omitempty"`

	long bool // the value is too long to be compared, and was not made readable for that
}

// viewer makes views.
type viewer struct {
	key         []byte              // whose values they are
	managed     bool                // show metadata.managedFields
	fingerprint func([]byte) string // of hidden values, to show that one has changed
}

func (out *view) addNote(note string) {
	if out.Note != "" {
		out.Note += "; "
	}
	out.Note += note
}

// text is what versions of a value are compared by.
func (out *view) text() string {
	switch {
	case out.Readable != "":
		return out.Readable
	case out.Text != "":
		return out.Text
	default:
		return out.Hex
	}
}

// printable reports whether the value is text that a page can show.
func printable(value []byte) bool {
	if !utf8.Valid(value) {
		return false
	}
	return bytes.IndexFunc(value, func(r rune) bool {
		return !unicode.IsGraphic(r) && r != '\n' && r != '\t' && r != '\r'
	}) < 0
}

// unfit returns why valid JSON is not shown on many lines, or asYAML: "" if it is.
func unfit(value []byte, asYAML bool) string {
	deepest, depth, length, values := 0, 0, len(value), 0
	quoted := false
	for i := 0; i < len(value); i++ {
		switch c := value[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{', c == '[':
			depth++
			values++
			deepest = max(deepest, depth)
			length += 2 * depth
		case c == ',':
			values++
			length += 2 * depth
		case c == '}', c == ']':
			depth--
			length += 2 * depth
		}
	}
	switch {
	case deepest > maxDepth:
		return "nested too deeply to be indented"
	case length > indentedBytes:
		return "too long to be indented"
	case asYAML && values > yamlValues:
		return "too many values to be shown as YAML"
	}
	return ""
}

func dump(value []byte) string { return hex.Dump(value[:min(len(value), hexBytes)]) }

// cut returns as much of s as is shown.
func cut(s string) string { return cutAt(s, textBytes) }

func cutAt(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "\n…"
}
