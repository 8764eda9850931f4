package deploy

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
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
		`rate(sqlbrain_commit_in_doubt_total[5m])`:                 "",
		`rate(sqlbrain_sql_errors_total{kind="other"}[5m])`:        "",
		`rate(sqlbrain_commits_in_doubt_total[5m])`:                `metric "sqlbrain_commits_in_doubt_total"`,
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

// published is where annotations find the repository's files.
const published = "https://github.com/sqlbrain/sqlbrain/blob/main/"

// anchors returns the anchors that GitHub gives to the headings of a Markdown text.
func anchors(text string) (all []string) {
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.+)$`).FindAllStringSubmatch(text, -1) {
		anchor := regexp.MustCompile(`[^\w -]`).ReplaceAllString(strings.ToLower(heading[1]), "")
		all = append(all, strings.ReplaceAll(anchor, " ", "-"))
	}
	return all
}

func TestRules(t *testing.T) {
	groups, errs := rulefmt.ParseFile(ruleFile, false, model.LegacyValidation)
	require.Empty(t, errs)
	all := exported(t)
	alerts := 0
	runbook := readText(t, "docs/runbook.md")
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			all.check(t, r.Alert, r.Expr)
			alerts++
			file, found := strings.CutPrefix(r.Annotations["runbook_url"], published+"docs/runbook.md#")
			assert.True(t, found, "%s: %s", r.Alert, r.Annotations["runbook_url"])
			assert.Contains(t, anchors(runbook), file, r.Alert)
			assert.Equal(t, strings.ToLower(r.Alert), file, "each alert has a heading of its own")
			assert.Contains(t, []string{"critical", "warning", "info"}, r.Labels["severity"], r.Alert)
		}
	}
	assert.Equal(t, alerts, strings.Count(runbook, "\n### Sqlbrain"), "the runbook speaks of other alerts too")
}

// A counter that appears with its first event shows Prometheus no increase, so an alert would miss that event. All
// values of labels that alerts ask for exist as soon as a member has started.
func TestCountersOfAlertsExistFromTheStart(t *testing.T) {
	families, err := openMember(t).Gather()
	require.NoError(t, err)
	started := make(map[string][]*dto.Metric)
	for _, f := range families {
		started[f.GetName()] = f.GetMetric()
	}
	groups, errs := rulefmt.ParseFile(ruleFile, false, model.LegacyValidation)
	require.Empty(t, errs)
	looked := 0
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			expr, err := parser.ParseExpr(r.Expr)
			require.NoError(t, err)
			parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
				m, ok := n.(*parser.MatrixSelector)
				if !ok {
					return nil
				}
				looked++
				v := m.VectorSelector.(*parser.VectorSelector)
				for _, wanted := range selected(t, v.LabelMatchers) {
					assert.True(t, slices.ContainsFunc(started[strings.TrimSuffix(strings.TrimSuffix(v.Name, "_bucket"), "_count")],
						func(m *dto.Metric) bool {
							return has(m, wanted)
						}), "%s: %s%v does not exist before it happened", r.Alert, v.Name, wanted)
				}
				return nil
			})
		}
	}
	assert.Positive(t, looked)
}

// selected returns the combinations of labels that matchers name. Labels of the target are not among them.
func selected(t *testing.T, matchers []*labels.Matcher) []map[string]string {
	all := []map[string]string{{}}
	for _, m := range matchers {
		if m.Name == model.MetricNameLabel || slices.Contains(targetLabels, m.Name) || m.Type == labels.MatchNotEqual ||
			m.Type == labels.MatchNotRegexp {
			continue
		}
		var more []map[string]string
		for _, value := range strings.Split(m.Value, "|") {
			require.Regexp(t, `^[\w.]+$`, value, "a pattern that is no list of values")
			for _, combination := range all {
				combination = maps.Clone(combination)
				combination[m.Name] = value
				more = append(more, combination)
			}
		}
		all = more
	}
	return all
}

// has reports whether m has these labels.
func has(m *dto.Metric, wanted map[string]string) bool {
	found := 0
	for _, l := range m.GetLabel() {
		if value, asked := wanted[l.GetName()]; asked && value == l.GetValue() {
			found++
		}
	}
	return found == len(wanted)
}

// dashboard is what is looked at of Grafana's JSON model.
type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Definition string }
	}
	Annotations struct {
		List []struct {
			Name, Expr string
			Enable     bool
			Datasource source
		}
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

	// It begins with plain figures, and marks when the leader changed.
	var first []string
	for _, p := range d.Panels {
		if p.GridPos.Y == 0 {
			assert.Equal(t, "stat", p.Type, p.Title)
			first = append(first, p.Title)
		}
	}
	assert.Equal(t, []string{"Leader", "Members alive", "Alerts firing", "99th percentile of commits"}, first)
	require.Len(t, d.Annotations.List, 1)
	mark := d.Annotations.List[0]
	assert.True(t, mark.Enable)
	assert.Equal(t, chosen, mark.Datasource)
	assert.Contains(t, mark.Expr, "etcd_server_leader_changes_seen_total")
	all.check(t, mark.Name, strings.NewReplacer(replace...).Replace(mark.Expr))

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
