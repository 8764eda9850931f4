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
	key         []byte              // whose values they are
	managed     bool                // show metadata.managedFields
	fingerprint func([]byte) string // tells hidden values apart
}

// view never fails: what cannot be decoded is shown as it is, with a note.
func (v viewer) view(value []byte) *view {
	out := &view{Kind: kindBinary, Bytes: len(value)}
	if len(value) == 0 {
		out.Kind, out.Editable = kindEmpty, true
		return out
	}
	var hidden bool
	switch {
	case bytes.HasPrefix(value, encryptedPrefix):
		out.Kind, out.Note = kindEncrypted, "kube-apiserver has encrypted this object: "+provider(value)
	case bytes.HasPrefix(value, protobufPrefix):
		out.Kind = kindKubernetes
		hidden = v.protobuf(out, value)
	case printable(value):
		hidden = v.plain(out, value)
	default:
		hidden = v.holdsSecret(value, 0)
	}
	if !hidden && out.Kind != kindEncrypted && !strings.HasSuffix(out.Type, " "+secretKind) && bytes.HasPrefix(v.key, secretsPrefix) {
		out.Readable, hidden = "", true // the key says what the value does not
	}
	if hidden {
		// What is hidden must not be shown in another form.
		out.addNote(secretNote)
		if out.Readable == "" {
			out.Readable = v.hidden(value) + "\n"
		}
		return out
	}
	if out.Kind == kindText || out.Kind == kindJSON || out.Kind == kindKubernetes && printable(value) {
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

// plain views text, and reports whether parts of it are hidden.
func (v viewer) plain(out *view, value []byte) (hidden bool) {
	out.Kind = kindText
	decoded, ok := decodeJSON(value)
	switch {
	case ok:
		return v.json(out, value, decoded)
	case !v.holdsSecret(value, 0):
		return false
	}
	// kube-apiserver can store objects as YAML.
	if documents, ok := decodeYAML(value); ok && len(documents) == 1 {
		if fields, ok := documents[0].(map[string]any); ok {
			raw, err := json.Marshal(fields)
			return v.object(out, fields, unfit(raw)) || err != nil
		}
	}
	return true
}

// json views JSON, and reports whether parts of it are hidden.
func (v viewer) json(out *view, value []byte, decoded any) (hidden bool) {
	out.Kind = kindJSON
	why := unfit(value)
	if fields, ok := decoded.(map[string]any); ok && isObject(fields) {
		return v.object(out, fields, why)
	}
	concealed, hidden := v.conceal(decoded, 0)
	if why != "" {
		out.addNote(why)
		return hidden
	}
	var b bytes.Buffer
	if hidden {
		var err error
		if value, err = json.Marshal(concealed); err != nil {
			return true
		}
	}
	if err := json.Indent(&b, value, "", "  "); err != nil {
		out.addNote("cannot be indented: " + err.Error())
		return hidden
	}
	out.Readable = cut(b.String())
	return hidden
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
