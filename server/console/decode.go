package console

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
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
	// Editable: Text is the whole value, and nothing of it is hidden.
	Editable bool   `json:"editable"`
	Note     string `json:"note,omitempty"`
}

// viewer makes views.
type viewer struct {
	managed     bool                // show metadata.managedFields
	fingerprint func([]byte) string // tells hidden values apart
}

// view never fails: what cannot be decoded is shown as it is, with a note.
func (v viewer) view(value []byte) *view {
	out := &view{Kind: kindBinary, Bytes: len(value)}
	switch {
	case len(value) == 0:
		out.Kind, out.Editable = kindEmpty, true
		return out
	case bytes.HasPrefix(value, encryptedPrefix):
		out.Kind, out.Note = kindEncrypted, "kube-apiserver has encrypted this object: "+provider(value)
	case bytes.HasPrefix(value, protobufPrefix):
		out.Kind = kindKubernetes
		if v.protobuf(out, value) {
			return out
		}
	case printable(value):
		if v.json(out, value) {
			return out
		}
		out.Text, out.Editable = string(value), len(value) <= textBytes
		if !out.Editable {
			out.Text = cut(out.Text)
			out.addNote("only the first 2 MiB are shown")
		}
	}
	out.Hex = dump(value)
	if len(value) > hexBytes {
		out.addNote("only the first 16 KiB are shown in hex")
	}
	return out
}

// json views JSON, and reports whether that is all: what is hidden must not be shown
// in another form.
func (v viewer) json(out *view, value []byte) (hidden bool) {
	out.Kind = kindText
	if trimmed := bytes.TrimSpace(value); len(trimmed) == 0 || trimmed[0] != '{' && trimmed[0] != '[' || !json.Valid(value) {
		return false
	}
	out.Kind = kindJSON
	if hidden, ok := v.object(out, value); ok {
		return hidden
	}
	if why := unfit(value); why != "" {
		out.addNote(why)
		return false
	}
	var b bytes.Buffer
	if err := json.Indent(&b, value, "", "  "); err != nil {
		out.addNote("cannot be indented: " + err.Error())
		return false
	}
	out.Readable = cut(b.String())
	return false
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

// unfit returns why valid JSON is not shown on many lines: "" if it is.
func unfit(value []byte) string {
	deepest, depth, length := 0, 0, len(value)
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
			deepest = max(deepest, depth)
			length += 2 * depth
		case c == ',':
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
	}
	return ""
}

func dump(value []byte) string { return hex.Dump(value[:min(len(value), hexBytes)]) }

// cut returns as much of s as is shown.
func cut(s string) string {
	if len(s) <= textBytes {
		return s
	}
	return strings.ToValidUTF8(s[:textBytes], "") + "\n…"
}
