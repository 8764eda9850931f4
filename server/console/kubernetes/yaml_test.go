package kubernetes

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v2"
)

// TestYAMLIsThatOfTheJSONReadAsYAML, which is how kubectl makes it.
func TestYAMLIsThatOfTheJSONReadAsYAML(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	scalars := []any{
		nil, true, false, "", " ", "text", "yes", "null", "~", "1", "1.5", "0x10", "2001-01-01", "a: b", "- a", "#", "<<",
		"<&>", "\n", "a\nb\n", "\t", "\u0007",
		"\u2028", "é", "😀", strings.Repeat("long ", 300), "'", "\"", "\\", "!!int 1", "*a", "&a", "{", "[", "|", ">", "%",
		"@", "`", "\ufffd",
		0, -1, 1.0, 1.5, math.Copysign(0, -1), 1e5, 1e20, 1e21, 1e-7, math.MaxInt64, math.MinInt64, uint64(math.MaxUint64),
		math.MaxFloat64, 123456789.0,
		json.Number("1e3"), json.Number("1.0"), json.Number("-0"), json.Number("1E+2"), json.Number("18446744073709551616"),
		json.Number("1e999"),
	}
	var value func(depth int) any
	value = func(depth int) any {
		switch n := random.IntN(4); {
		case depth == 0 || n < 2:
			return scalars[random.IntN(len(scalars))]
		case n == 2:
			list := make([]any, random.IntN(4))
			for i := range list {
				list[i] = value(depth - 1)
			}
			return list
		}
		fields := map[string]any{}
		for range random.IntN(4) {
			if name, ok := scalars[random.IntN(len(scalars))].(string); ok && len(name) < 1000 {
				fields[name] = value(depth - 1)
			}
		}
		return fields
	}
	for range 3000 {
		fields := map[string]any{"a": value(4), "b": value(2)}
		raw, err := json.Marshal(fields)
		require.NoError(t, err)
		var plain any
		require.NoError(t, yaml.Unmarshal(raw, &plain), string(raw))
		want, err := yaml.Marshal(plain)
		require.NoError(t, err)
		got, err := YAML(fields)
		require.NoError(t, err)
		require.Equal(t, string(want), string(got), string(raw))
	}
}
