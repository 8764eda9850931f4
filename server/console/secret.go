package console

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v2"
)

// The kinds of objects whose data are hidden, in whatever group they are.
const (
	secretKind     = "Secret"
	secretListKind = "SecretList"
)

var (
	// secretWord is in every object that is or holds a Secret.
	secretWord = []byte(secretKind)
	kindWord   = []byte("kind")
	// secretsPrefix is where kube-apiserver keeps Secrets by default.
	secretsPrefix = []byte("/registry/secrets/")
	// kindIsSecret finds the kind in text that cannot be decoded, also in quoted JSON.
	kindIsSecret = regexp.MustCompile(`kind["'\\]*\s*[:=]\s*["'\\]*Secret`)
	// cborPrefix marks an object that kube-apiserver stores as CBOR.
	cborPrefix = []byte{0xd9, 0xd9, 0xf7}
	byteOrder  = []byte("\ufeff") // some programs begin text with it
)

const (
	secretNote = "what a Secret holds is not shown"
	// lastApplied is where kubectl apply keeps the whole object once more.
	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
	// shortAnnotation is the length up to which the annotations of a Secret are shown.
	// Longer ones, and objects in JSON, may be copies of it, as several tools keep them.
	shortAnnotation = 128
	// textDepth bounds how often text in text is decoded.
	textDepth = 4
)

// conceal replaces what Secrets hold anywhere in a decoded value, also in text that can be
// decoded itself, and reports whether there was any. It changes x in place where it can.
func (v viewer) conceal(x any, depth int) (out any, hidden bool) {
	switch x := x.(type) {
	case map[string]any:
		switch x["kind"] {
		case secretKind:
			hidden = v.hide(x)
		case secretListKind:
			items, _ := x["items"].([]any)
			for _, item := range items {
				if fields, ok := item.(map[string]any); ok { // it does not name its kind
					hidden = v.hide(fields) || hidden
				}
			}
		}
		for name, part := range x {
			if concealed, found := v.conceal(part, depth); found {
				x[name], hidden = concealed, true
			}
		}
	case []any:
		for i, part := range x {
			if concealed, found := v.conceal(part, depth); found {
				x[i], hidden = concealed, true
			}
		}
	case string:
		if v.holdsSecret([]byte(x), depth) {
			return v.hidden([]byte(x)), true
		}
	}
	return x, hidden
}

// holdsSecret reports whether a value that is not protobuf is or holds a Secret. If it
// cannot be decoded, it counts as one if it looks like one.
func (v viewer) holdsSecret(value []byte, depth int) bool {
	decoded, ok := decodeJSON(value)
	switch {
	case ok && depth < textDepth:
		_, hidden := v.conceal(decoded, depth+1)
		return hidden
	case !bytes.Contains(value, secretWord) || !bytes.Contains(value, kindWord):
		return false
	case bytes.HasPrefix(value, cborPrefix), bytes.HasPrefix(value, protobufPrefix):
		return true
	}
	if documents, ok := decodeYAML(value); ok && depth < textDepth {
		for _, document := range documents {
			if _, hidden := v.conceal(document, depth+1); hidden {
				return true
			}
		}
		return false
	}
	return kindIsSecret.Match(value)
}

// decodeJSON decodes an object or an array of JSON.
func decodeJSON(value []byte) (decoded any, ok bool) {
	value = bytes.TrimSpace(bytes.TrimPrefix(value, byteOrder))
	if len(value) == 0 || value[0] != '{' && value[0] != '[' || !json.Valid(value) {
		return nil, false
	}
	d := json.NewDecoder(bytes.NewReader(value))
	d.UseNumber() // a float64 would round large integers
	return decoded, d.Decode(&decoded) == nil
}

// documentMark separates the documents of YAML.
var documentMark = regexp.MustCompile(`(?m)^---(\s|$)`)

// decodeYAML decodes objects and arrays that have few values. It does not follow aliases: kube-apiserver writes
// none, and a small text of them can become a large value.
func decodeYAML(value []byte) (documents []any, ok bool) {
	if len(value) > textBytes || bytes.ContainsRune(value, '&') && bytes.ContainsRune(value, '*') ||
		bytes.Count(value, []byte(","))+bytes.Count(value, []byte("\n")) > yamlValues {
		return nil, false
	}
	for _, text := range documentMark.Split(string(value), -1) {
		if strings.TrimSpace(text) == "" {
			continue
		}
		var document any
		if yaml.Unmarshal([]byte(text), &document) != nil {
			return nil, false
		}
		switch document = namedFields(document); document.(type) {
		case map[string]any, []any:
			documents = append(documents, document)
		default:
			return nil, false // a scalar is plain text
		}
	}
	return documents, true
}

// namedFields returns decoded YAML as decoded JSON: the names of fields are strings. It changes lists in place.
func namedFields(x any) any {
	switch x := x.(type) {
	case map[any]any:
		fields := make(map[string]any, len(x))
		for name, part := range x {
			fields[fmt.Sprint(name)] = namedFields(part)
		}
		return fields
	case []any:
		for i, part := range x {
			x[i] = namedFields(part)
		}
	}
	return x
}

// hide replaces what a Secret holds by how long it is, and by a fingerprint that shows a
// change. It reports whether it holds anything.
func (v viewer) hide(fields map[string]any) (hidden bool) {
	for name, part := range fields {
		if !strings.EqualFold(name, "data") && !strings.EqualFold(name, "stringData") {
			continue
		}
		values, ok := part.(map[string]any)
		if !ok {
			fields[name], hidden = "hidden", true
			continue
		}
		for key, value := range values {
			text, ok := value.(string)
			raw := []byte(text)
			if decoded, err := base64.StdEncoding.DecodeString(text); strings.EqualFold(name, "data") && err == nil {
				raw = decoded
			}
			hidden = true
			if values[key] = "hidden"; ok {
				values[key] = v.hidden(raw)
			}
		}
	}
	metadata, _ := fields["metadata"].(map[string]any)
	annotations, _ := metadata["annotations"].(map[string]any)
	for name, value := range annotations {
		text, _ := value.(string)
		if _, decodes := decodeJSON([]byte(text)); decodes || name == lastApplied || len(text) > shortAnnotation {
			annotations[name], hidden = v.hidden([]byte(text)), true
		}
	}
	return hidden
}

// hidden returns the text that is shown in place of a hidden value.
func (v viewer) hidden(value []byte) string {
	return fmt.Sprintf("hidden: %d bytes, fingerprint %s", len(value), v.fingerprint(value))
}

// newFingerprint returns a function that gives different values different names. Not even a
// short value can be found from its name by trying: the key is random and stays in this process.
func newFingerprint() func([]byte) string {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // it never fails
	return func(value []byte) string {
		mac := hmac.New(sha256.New, key)
		_, _ = mac.Write(value) // nor does this
		return hex.EncodeToString(mac.Sum(nil)[:4])
	}
}
