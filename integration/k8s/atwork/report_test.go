package atwork

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// result holds the measurements of one cluster on one store.
type result struct {
	Store       string       `json:"store"`
	Description string       `json:"description"`
	Started     time.Time    `json:"started"`
	Steps       []stepResult `json:"steps"`
	// API are the API server's requests by verb, Requests those it made to the store.
	API      map[string]latency `json:"api_requests"`
	Requests map[string]latency `json:"store_requests"`
	// Peak is the most memory that each role's processes had.
	Peak      map[string]int64 `json:"peak_resident_bytes"`
	DiskBytes int64            `json:"disk_bytes"` // with all pods
	// Objects were compared with all pods there, key by key.
	Objects           int                `json:"objects_compared"`
	ConsistencyChecks map[string]float64 `json:"consistency_checks"`
}

// stepResult is what a step took; times are in seconds.
type stepResult struct {
	Name      string             `json:"name"`
	Seconds   float64            `json:"seconds"`
	Revisions int64              `json:"revisions"`
	CPU       map[string]float64 `json:"cpu_seconds"`
	// Others is the CPU time of everything outside the cluster: the test and other
	// processes of the machine.
	Others      float64          `json:"others_cpu_seconds"`
	Resident    map[string]int64 `json:"resident_bytes"`
	PodsStarted int              `json:"pods_started,omitempty"`
	PodStartP50 float64          `json:"pod_start_p50,omitempty"`
	PodStartP99 float64          `json:"pod_start_p99,omitempty"`
}

func (s stepResult) String() string {
	return fmt.Sprintf("%-22s %6.1f s, %6d revisions, CPU of store %.1f s, database %.1f s, API server %.1f s, others %.1f s; %d pods started, p50 %.1f s, p99 %.1f s",
		s.Name, s.Seconds, s.Revisions, s.CPU[roleStore], s.CPU[roleDatabase], s.CPU["kube-apiserver"], s.Others,
		s.PodsStarted, s.PodStartP50, s.PodStartP99)
}

// tell prints the tables, and writes them to a directory if one is set.
func tell(t *testing.T, sz size, results []result) {
	t.Helper()
	table := markdown(sz, results)
	t.Log("\n" + table)
	if os.Getenv(envReport) == "" {
		return
	}
	require.NoError(t, os.WriteFile(reportFile(t, "cluster.md"), []byte(table), 0o644))
	all := map[string]any{"nodes": sz.nodes, "pods": sz.pods, "deployments": sz.deployments, "namespaces": sz.namespaces,
		"results": results}
	content, err := json.MarshalIndent(all, "", "  ")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(reportFile(t, "cluster.json"), content, 0o644))
}

func reportFile(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv(envReport)
	require.NotEmpty(t, dir, "set %s to a directory", envReport)
	require.NoError(t, os.MkdirAll(dir, 0o755))
	return filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
}

func markdown(sz size, results []result) string {
	var s strings.Builder
	row := func(first string, cell func(result) string) {
		fmt.Fprintf(&s, "| %s |", first)
		for _, r := range results {
			fmt.Fprintf(&s, " %s |", cell(r))
		}
		s.WriteString("\n")
	}
	head := func(title string) {
		s.WriteString("\n")
		row(title, func(r result) string { return r.Description })
		s.WriteString("|---|" + strings.Repeat("---|", len(results)) + "\n")
	}
	fmt.Fprintf(&s, "%s\n", sz)

	head("seconds to converge (revisions; CPU seconds of others)")
	for i, st := range steps {
		row(st.name, func(r result) string {
			return fmt.Sprintf("%.1f (%d; %.0f)", r.Steps[i].Seconds, r.Steps[i].Revisions, r.Steps[i].Others)
		})
	}
	head("CPU seconds of the store + its database, of the whole cluster's")
	for i, st := range steps {
		row(st.name, func(r result) string {
			cpu, all := r.Steps[i].CPU, 0.0
			for _, spent := range cpu {
				all += spent
			}
			return fmt.Sprintf("%.1f + %.1f of %.1f", cpu[roleStore], cpu[roleDatabase], all)
		})
	}
	head("pod first seen to running, seconds p50 / p99")
	for i, st := range steps {
		if results[0].Steps[i].PodsStarted > 0 {
			row(st.name, func(r result) string {
				return fmt.Sprintf("%.2f / %.2f", r.Steps[i].PodStartP50, r.Steps[i].PodStartP99)
			})
		}
	}
	for _, group := range []struct {
		title string
		of    func(result) map[string]latency
	}{
		{"API requests, ms p50 / p99 (number)", func(r result) map[string]latency { return r.API }},
		{"the API server's requests to the store, ms p50 / p99 (number)", func(r result) map[string]latency { return r.Requests }},
	} {
		head(group.title)
		names := map[string]bool{}
		for _, r := range results {
			for name := range group.of(r) {
				names[name] = true
			}
		}
		for _, name := range slices.Sorted(maps.Keys(names)) {
			row(name, func(r result) string {
				l := group.of(r)[name]
				return fmt.Sprintf("%.1f / %.1f (%d)", l.P50, l.P99, l.Requests)
			})
		}
	}
	head("memory at most, MiB")
	for _, role := range []string{roleStore, roleDatabase, "kube-apiserver"} {
		row(role, func(r result) string { return fmt.Sprintf("%.0f", float64(r.Peak[role])/(1<<20)) })
	}
	row("on disk, with all pods", func(r result) string { return fmt.Sprintf("%.0f", float64(r.DiskBytes)/(1<<20)) })
	row("objects compared key by key", func(r result) string { return strconv.Itoa(r.Objects) })
	row("the API server's own comparisons, good / bad", func(r result) string {
		return fmt.Sprintf("%.0f / %.0f", r.ConsistencyChecks["success"], r.ConsistencyChecks["failure"])
	})
	return s.String()
}

// fetchProfile stores what a URL answers; what it returns waits for the end of that.
func fetchProfile(t *testing.T, url, file string) (wait func()) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		transport := &http.Transport{}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Do(request)
		if !assert.NoError(t, err) {
			return
		}
		content, err := io.ReadAll(response.Body)
		assert.NoError(t, err)
		assert.NoError(t, response.Body.Close())
		assert.NoError(t, os.WriteFile(file, content, 0o644))
	}()
	return func() { <-done }
}
