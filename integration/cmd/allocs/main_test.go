package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const before = `goos: linux
BenchmarkRequest/get-2  	 1000	 50000 ns/op	 10000 B/op	 100 allocs/op
--- BENCH: BenchmarkRequest/get-2
BenchmarkRequest/get-2  	 1000	 90000 ns/op	 10100 B/op	 100 allocs/op
BenchmarkRequest/get-2  	 1000	 10000 ns/op	 99000 B/op	 900 allocs/op
PASS
`

// TestCompare: medians may be a tenth above the baseline, and times are not compared.
func TestCompare(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	baseline := file("before", before)
	for _, c := range []struct{ now, failure string }{
		{before, ""},
		{"BenchmarkRequest/get-8 1000 990000 ns/op 11100 B/op 110 allocs/op\n", ""},
		{"BenchmarkRequest/get 1000 1 ns/op 100 B/op 1 allocs/op\n", ""},
		{"BenchmarkRequest/get-2 1000 1 ns/op 100 B/op 111 allocs/op\n", "BenchmarkRequest/get: 111 allocs/op are 11% more than 100"},
		{"BenchmarkRequest/get-2 1000 1 ns/op 11200 B/op 1 allocs/op\n", "BenchmarkRequest/get: 11200 B/op are 11% more than 10100"},
		{"BenchmarkRequest/get-2 1000 1 ns/op 100 B/op\n", "BenchmarkRequest/get: allocs/op were not measured"},
		{"BenchmarkRequest/put-2 1000 1 ns/op 100 B/op 1 allocs/op\n", "BenchmarkRequest/get: allocs/op were not measured"},
		{before + "BenchmarkRequest/put-2 1000 1 ns/op 100 B/op 1 allocs/op\n", "BenchmarkRequest/put: the baseline has no allocs/op"},
		{"PASS\n", "no results of benchmarks"},
		{"BenchmarkRequest/get-2 1000 x ns/op\n", "invalid syntax"},
	} {
		var out bytes.Buffer
		err := run([]string{baseline, file("now", c.now)}, &out)
		if c.failure == "" {
			require.NoError(t, err)
			require.True(t, strings.Contains(out.String(), "BenchmarkRequest/get"))
			continue
		}
		require.ErrorContains(t, err, c.failure)
	}
	require.Error(t, run([]string{baseline}, &bytes.Buffer{}))
	require.Error(t, run([]string{baseline, filepath.Join(dir, "none")}, &bytes.Buffer{}))
}
