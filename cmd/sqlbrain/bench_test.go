package main

import (
	"path/filepath"
	"testing"
)

func TestBenchRefusesInvalidOptions(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"name a workload", []string{"bench"}},
		{"unknown workload", []string{"bench", "--workload", "nonsense"}},
		{"want table or json", []string{"bench", "get", "--output", "xml"}},
		{"want get, list, create, update or delete", []string{"bench", "mixed", "--mix", "gets=1"}},
		{"at least 16 bytes", []string{"bench", "get", "--value-size", "3"}},
		{"no such file", []string{"bench", "get", "--cacert", filepath.Join(t.TempDir(), "ca.crt")}},
		{"127.0.0.1:1", []string{"bench", "get", "--endpoints", "127.0.0.1:1", "--timeout", "100ms", "--retry-for", "1ms"}},
	} {
		execute(t, c.args...).requireRefused(t, c.want)
	}
}
