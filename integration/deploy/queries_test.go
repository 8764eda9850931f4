package deploy

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// unknown returns what query asks for and all does not have: metrics, or labels.
func (all metrics) unknown(query string) ([]string, error) {
	expr, err := parser.ParseExpr(query)
	if err != nil {
		return nil, err
	}
	var missing []string
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		known, ok := all[v.Name]
		if !ok {
			missing = append(missing, fmt.Sprintf("metric %q", v.Name))
			return nil
		}
		for _, m := range v.LabelMatchers {
			if m.Name != model.MetricNameLabel && !known[m.Name] && !slices.Contains(targetLabels, m.Name) {
				missing = append(missing, fmt.Sprintf("label %q of %s", m.Name, v.Name))
			}
		}
		return nil
	})
	return missing, nil
}

// grouped returns the labels that the query keeps apart or matches on, and that none
// of its metrics has.
func (all metrics) grouped(query string) (missing []string) {
	expr, err := parser.ParseExpr(query)
	if err != nil {
		return nil
	}
	known := make(map[string]bool)
	for _, l := range targetLabels {
		known[l] = true
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if v, ok := n.(*parser.VectorSelector); ok {
			for l := range all[v.Name] {
				known[l] = true
			}
		}
		return nil
	})
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		var used []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			used = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				used = n.VectorMatching.MatchingLabels
			}
		}
		for _, l := range used {
			if !known[l] {
				missing = append(missing, fmt.Sprintf("label %q", l))
			}
		}
		return nil
	})
	return missing
}

func (all metrics) check(t *testing.T, where, query string) {
	missing, err := all.unknown(query)
	if assert.NoError(t, err, where) {
		assert.Empty(t, append(missing, all.grouped(query)...), "%s: %s", where, query)
	}
}

func TestMissingMetricsAndLabelsAreFound(t *testing.T) {
	all := exported(t)
	for query, want := range map[string]string{
		`rate(sqlbrain_commit_settled_total[5m])`:                  "",
		`rate(sqlbrain_sql_errors_total{kind="other"}[5m])`:        "",
		`rate(sqlbrain_commits_settled_total[5m])`:                 `metric "sqlbrain_commits_settled_total"`,
		`sqlbrain_leases > 0 and on (job) etcd_no_such`:            `metric "etcd_no_such"`,
		`rate(sqlbrain_commit_duration_seconds[5m])`:               `metric "sqlbrain_commit_duration_seconds"`,
		`rate(sqlbrain_sql_errors_total_bucket[5m])`:               `metric "sqlbrain_sql_errors_total_bucket"`,
		`rate(sqlbrain_sql_errors_total{class="other"}[5m])`:       `label "class" of sqlbrain_sql_errors_total`,
		`sum by (job, verb) (rate(sqlbrain_sql_errors_total[5m]))`: `label "verb"`,
	} {
		missing, err := all.unknown(query)
		require.NoError(t, err, query)
		assert.Equal(t, want, strings.Join(append(missing, all.grouped(query)...), ", "), query)
	}
}

func TestRules(t *testing.T) {
	groups, errs := rulefmt.ParseFile(folder+"prometheus/sqlbrain.rules.yml", false, model.LegacyValidation)
	require.Empty(t, errs)
	runbook, err := os.ReadFile("../../docs/runbook.md")
	require.NoError(t, err)
	all := exported(t)
	alerts := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all.check(t, r.Alert, r.Expr)
			alerts++
			assert.Equal(t, "docs/runbook.md#"+strings.ToLower(r.Alert), r.Annotations["runbook"], r.Alert)
			assert.Contains(t, string(runbook), "\n### "+r.Alert+"\n", "the runbook says nothing of it")
			assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		}
	}
	assert.Equal(t, alerts, strings.Count(string(runbook), "\n### Sqlbrain"), "the runbook speaks of other alerts too")
}

// dashboard is what is looked at of Grafana's JSON model.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Panels []struct {
		ID          int
		Type, Title string
		Datasource  source
		GridPos     struct{ H, W, X, Y int }
		Targets     []struct {
			RefID      string
			Datasource source
			Expr       string
		}
	}
}

type source struct{ Type, UID string }

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile(folder + "grafana/sqlbrain.json")
	require.NoError(t, err)
	var d dashboard
	require.NoError(t, json.Unmarshal(text, &d))
	require.NotEmpty(t, d.Panels)
	all := exported(t)

	chosen, replace := source{"prometheus", "${datasource}"}, []string{"$__rate_interval", "5m"}
	variables := make(map[string]string)
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
		replace = append(replace, "$"+v.Name, ".+")
		if selector, found := strings.CutPrefix(v.Definition, "label_values("); found {
			selector, _, _ = strings.Cut(selector, ", ") // the selector of a variable has one label at most
			all.check(t, "variable "+v.Name, strings.NewReplacer(replace...).Replace(selector))
		}
	}
	assert.Equal(t, "datasource", variables["datasource"])

	ids, taken := make(map[int]bool), make(map[[2]int]string)
	for _, p := range d.Panels {
		assert.False(t, ids[p.ID], "two panels have the id %d", p.ID)
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			assert.Less(t, x, 24, "%s is wider than the grid", p.Title)
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				assert.Empty(t, taken[[2]int{x, y}], "%s lies over another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		assert.Equal(t, chosen, p.Datasource, p.Title)
		assert.NotEmpty(t, p.Targets, p.Title)
		for _, q := range p.Targets {
			assert.Equal(t, chosen, q.Datasource, p.Title)
			query := strings.NewReplacer(replace...).Replace(q.Expr)
			assert.NotContains(t, query, "$", "%s uses a variable that is not there", p.Title)
			all.check(t, p.Title, query)
		}
	}
}
