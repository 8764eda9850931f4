package kubernetes

import (
	"bytes"
	"encoding/json"
	"strconv"

	"go.yaml.in/yaml/v2"
)

// YAML returns the YAML of fields as kubectl writes it: of their JSON, with numbers as YAML reads them, so that they
// are written in the same form whatever type they had. To read the JSON as YAML gives the same, and takes several times
// as long.
func YAML(fields map[string]any) ([]byte, error) {
	raw, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	decoded, err := decodeJSON(raw)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(numbersInYAML(decoded))
}

// numbersInYAML replaces the numbers of JSON by those that YAML reads. Numbers that are out of range are texts there.
func numbersInYAML(x any) any {
	switch x := x.(type) {
	case map[string]any:
		for name, part := range x {
			x[name] = numbersInYAML(part)
		}
	case []any:
		for i, part := range x {
			x[i] = numbersInYAML(part)
		}
	case json.Number:
		text := x.String()
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseUint(text, 10, 64); err == nil {
			return n
		}
		if n, err := strconv.ParseFloat(text, 64); err == nil {
			return n
		}
		return text
	}
	return x
}

// decodeJSON decodes JSON without rounding its numbers.
func decodeJSON(raw []byte) (decoded any, err error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber() // a float64 would round large integers
	return decoded, d.Decode(&decoded)
}
