package deploy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/page"
)

// described takes the help out of the String of a prometheus.Desc.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", help: ("(?:[^"\\]|\\.)*"), `)

// libraries begin the names of metrics that libraries export, with their own explanations.
var libraries = []string{"go_", "process_", "promhttp_"}

// TestMetricsPage: docs/reference/metrics.md has every metric of a member.
func TestMetricsPage(t *testing.T) {
	registry := openMember(t)
	families, err := registry.Gather()
	require.NoError(t, err)
	types := make(map[string]string)
	for _, f := range families {
		types[f.GetName()] = strings.ToLower(f.GetType().String())
	}
	rows := make(map[string]string)
	for _, d := range describe(registry) {
		found, help := description.FindStringSubmatch(d), described.FindStringSubmatch(d)
		require.NotNil(t, found, d)
		require.NotNil(t, help, d)
		text, err := strconv.Unquote(help[2])
		require.NoError(t, err, d)
		name, kind := found[1], types[found[1]]
		if kind == "" { // it has no value of a label yet
			kind = "gauge"
			if strings.HasSuffix(name, "_total") {
				kind = "counter"
			}
		}
		var labels []string
		for l := range strings.SplitSeq(found[2]+","+found[3], ",") {
			if label, _, _ := strings.Cut(l, "="); label != "" {
				labels = append(labels, "`"+label+"`")
			}
		}
		if !slices.ContainsFunc(libraries, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			rows[name] = fmt.Sprintf("| `%s` | %s | %s | %s |\n", name, kind, strings.Join(labels, ", "), page.Cell(text))
		}
	}
	var b strings.Builder
	b.WriteString(`# Metrics

Every member serves these at ` + "`/metrics`" + `, on its client URLs and on ` + "`--listen-metrics-urls`" + `. It also exports Go's
` + "`go_*`" + `, the process's ` + "`process_*`" + `, and ` + "`promhttp_*`" + `. [Monitoring](../monitoring.md) compares them with etcd's.

## sqlbrain's own

| metric | type | labels | meaning |
|---|---|---|---|
`)
	names := slices.Sorted(maps.Keys(rows))
	for _, name := range names {
		if strings.HasPrefix(name, "sqlbrain_") {
			b.WriteString(rows[name])
		}
	}
	b.WriteString("\n## With etcd's names\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
	for _, name := range names {
		if !strings.HasPrefix(name, "sqlbrain_") {
			b.WriteString(rows[name])
		}
	}
	page.Check(t, "../../..", "metrics.md", b.String())
}
