package deploy

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const ruleFile = folder + "prometheus/sqlbrain.rules.yml"

// stepOf returns how often, in the scenes of an alert, members are scraped and rules are evaluated.
func stepOf(alert string) time.Duration {
	switch alert {
	case "SqlbrainRequestsFail", "SqlbrainNotReady":
		return 5 * time.Second // they fire before another one would be looked at twice
	}
	return 30 * time.Second
}

// scene is a history that an alert is looked at in.
type scene struct {
	what string
	// series are as promtool has them: name, labels, and values, one for each step.
	series []string
	// fires are the instances that the alert fires for at the end; "" is all of the
	// job. None: it does not fire at any time.
	fires []string
}

// load returns the scene as promtool's engine takes it, and how long it lasts.
func (s scene) load(t *testing.T, step time.Duration) (text string, lasts time.Duration) {
	t.Helper()
	var lines []string
	for _, line := range s.series {
		_, values, err := parser.ParseSeriesDesc(line)
		require.NoError(t, err, line)
		lasts = max(lasts, time.Duration(len(values)-1)*step)
		lines = append(lines, "  "+line)
	}
	return fmt.Sprintf("load %s\n%s\n", step, strings.Join(lines, "\n")), lasts
}

// play evaluates the rules all through the scene, and returns for each moment at which
// the alert fires the instances it fires for.
func (s scene) play(t *testing.T, alert string, step time.Duration) (fired [][]string) {
	t.Helper()
	text, lasts := s.load(t, step)
	suite, err := promqltest.NewLazyLoader(text,
		promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	require.NoError(t, err)
	defer func() { require.NoError(t, suite.Close()) }()
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(suite.QueryEngine(), suite.Storage()), Appendable: suite.Storage(),
		Queryable: suite.Queryable(),
		Context:   t.Context(), NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger: promslog.NewNopLogger(),
	})
	groups, errs := manager.LoadGroups(step, labels.EmptyLabels(), "", nil, false, ruleFile)
	require.Empty(t, errs)
	for at := time.Duration(0); at <= lasts; at += step {
		now := time.Unix(0, 0).Add(at)
		var firing []string
		suite.WithSamplesTill(now, func(err error) {
			require.NoError(t, err)
			for _, g := range groups {
				g.Eval(suite.Context(), now)
				for _, r := range g.Rules() {
					require.NoError(t, r.LastError(), r.Name())
					if rule, ok := r.(*rules.AlertingRule); ok && r.Name() == alert {
						firing = append(firing, instances(t, rule)...)
					}
				}
			}
		})
		slices.Sort(firing)
		fired = append(fired, firing)
	}
	return fired
}

// instances returns those that the rule fires for, and looks at what it says of them.
func instances(t *testing.T, rule *rules.AlertingRule) (all []string) {
	t.Helper()
	for _, active := range rule.ActiveAlerts() {
		if active.State != rules.StateFiring {
			continue
		}
		assert.Equal(t, "sqlbrain", active.Labels.Get("job"))
		summary := active.Annotations.Get("summary")
		assert.Contains(t, summary, "sqlbrain: ")
		assert.NotContains(t, summary, "error")
		assert.NotContains(t, summary, "<no value>")
		all = append(all, active.Labels.Get("instance"))
	}
	return all
}

// Each alert fires when it should, not before its time, and for whom it should; and it
// is silent in what is usual.
func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile(ruleFile, false, model.LegacyValidation)
	require.Empty(t, errs)
	known := exported(t)
	left := maps.Clone(scenes)
	for _, g := range groups.Groups {
		for _, r := range g.Rules {
			delete(left, r.Alert)
			t.Run(r.Alert, func(t *testing.T) {
				var fires, silent bool
				step := stepOf(r.Alert)
				for _, s := range scenes[r.Alert] {
					for _, line := range s.series {
						selector, _, _ := strings.Cut(line, "} ")
						known.check(t, s.what, selector+"}")
					}
					fired := s.play(t, r.Alert, step)
					if len(s.fires) == 0 {
						silent = true
						for n, firing := range fired {
							require.Empty(t, firing, "%s: after %s", s.what, time.Duration(n)*step)
						}
						continue
					}
					fires = true
					require.Equal(t, s.fires, fired[len(fired)-1], s.what)
					for n := range fired {
						if time.Duration(n)*step < time.Duration(r.For) {
							require.Empty(t, fired[n], "%s: after %s already", s.what, time.Duration(n)*step)
						}
					}
				}
				require.True(t, fires, "no scene in which it fires")
				require.True(t, silent, "no scene in which it is silent")
			})
		}
	}
	require.Empty(t, left, "scenes of alerts that are not there")
}
