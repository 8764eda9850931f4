package console

import (
	"bytes"
	"encoding/json"
	"strings"

	"github.com/sqlbrain/sqlbrain/server/console/kubernetes"
)

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
	if !hidden && out.Kind != kindEncrypted && !strings.HasSuffix(out.Type, " "+secretKind) &&
		bytes.HasPrefix(v.key, secretsPrefix) {
		out.Readable, hidden = "", true // the key says what the value does not
	}
	if hidden {
		// Text and hex would show the hidden parts.
		out.addNote(secretNote)
		out.Hidden, out.YAML = true, false
		if out.Readable == "" {
			out.Readable = v.hidden(value) + "\n"
		}
		return out
	}
	if out.Kind == kindText || out.Kind == kindJSON || out.Kind == kindKubernetes && printable(value) {
		out.Text, out.Editable = string(value), len(value) <= textBytes && sameLineEnds(value)
		if len(value) > textBytes {
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

// sameLineEnds reports whether all lines end in \n, or all in \r\n: a page's text area does not keep others.
func sameLineEnds(text []byte) bool {
	cr, lf, both := bytes.Count(text, []byte("\r")), bytes.Count(text, []byte("\n")), bytes.Count(text, []byte("\r\n"))
	return cr == 0 || cr == both && lf == both
}

// kindOf returns the kind of a value, or the type of an object of Kubernetes, without decoding all of it.
func kindOf(value []byte) string {
	switch {
	case len(value) == 0:
		return kindEmpty
	case bytes.HasPrefix(value, encryptedPrefix):
		return kindEncrypted
	case bytes.HasPrefix(value, protobufPrefix):
		if version, kind := kubernetes.TypeOf(value); kind != "" {
			return typeName(version, kind)
		}
		return kindBinary
	case !printable(value):
		return kindBinary
	}
	if decoded, ok := decodeJSON(value); ok {
		if fields, ok := decoded.(map[string]any); ok && isObject(fields) {
			return typeName(fields["apiVersion"].(string), fields["kind"].(string))
		}
		return kindJSON
	}
	return kindText
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
			return v.object(out, fields, unfit(raw, true)) || err != nil
		}
	}
	return true
}

// json views JSON, and reports whether parts of it are hidden.
func (v viewer) json(out *view, value []byte, decoded any) (hidden bool) {
	out.Kind = kindJSON
	if fields, ok := decoded.(map[string]any); ok && isObject(fields) {
		return v.object(out, fields, unfit(value, true))
	}
	concealed, hidden := v.conceal(decoded, 0)
	if why := unfit(value, false); why != "" {
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
