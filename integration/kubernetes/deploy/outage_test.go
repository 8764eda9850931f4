package deploy

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// Prometheus' rules fire by what a real server exports, when its database hangs or has died under requests. How soon is
// measured elsewhere: docs/monitoring.md.
func TestAlertsOfAnOutage(t *testing.T) {
	for what, away := range map[string]func(*enginetest.Server){"hangs": (*enginetest.Server).Pause,
		"died": (*enginetest.Server).Kill} {
		t.Run(what, func(t *testing.T) {
			db := enginetest.StartServer(t)
			node := harness.StartNodeOn(t, db.URL())
			p := newScraper(t, node)
			client := node.Client()
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for ctx.Err() == nil {
					_, _ = client.Put(ctx, "key", "value")
				}
			}()
			defer func() {
				stop()
				<-ended
			}()
			eventually.True(t, "the member is ready, and nothing fires", func() bool {
				firing := p.look(t)
				require.Empty(t, firing)
				return p.ready
			})

			away(db)
			eventually.True(t, "both alerts fire", func() bool {
				firing := p.look(t)
				return firing["SqlbrainRequestsFail Put"] && firing["SqlbrainNotReady database"]
			})
			if what == "hangs" {
				db.Resume()
			} else {
				db.Start()
			}
			eventually.True(t, "no alert fires any longer", func() bool { return len(p.look(t)) == 0 })
		})
	}
}

// outages are the rules that are looked at: those of the first group.
const outages = "sqlbrain.outage"

// scraper is what Prometheus does: it scrapes a node, and evaluates rules.
type scraper struct {
	url     string
	storage *teststorage.TestStorage
	group   *rules.Group
	last    time.Time
	ready   bool // the newest scrape had the checks
}

func newScraper(t *testing.T, node *harness.Node) *scraper {
	p := &scraper{url: node.Endpoint() + "/metrics", storage: teststorage.New(t)}
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery),
			p.storage),
		Appendable: p.storage, Queryable: p.storage, Context: t.Context(),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, Logger: promslog.NewNopLogger(),
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, ruleFile)
	require.Empty(t, errs)
	for _, g := range groups {
		if g.Name() == outages {
			p.group = g
		}
	}
	require.NotNil(t, p.group)
	return p
}

// look scrapes and evaluates, and returns which alerts fire.
func (p *scraper) look(t *testing.T) map[string]bool {
	t.Helper()
	p.scrape(t)
	p.group.Eval(t.Context(), p.last)
	firing := make(map[string]bool)
	for _, r := range p.group.AlertingRules() {
		require.NoError(t, r.LastError())
		for _, a := range r.ActiveAlerts() {
			if a.State == rules.StateFiring {
				firing[strings.TrimSpace(fmt.Sprint(r.Name(), " ", a.Labels.Get("grpc_method"), a.Labels.Get("name")))] = true
			}
		}
	}
	return firing
}

// scrape stores the node's counters and gauges, with the labels of a target.
func (p *scraper) scrape(t *testing.T) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url, nil)
	require.NoError(t, err)
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer http.DefaultClient.CloseIdleConnections()
	defer response.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(response.Body)
	require.NoError(t, err)
	p.last = time.Now()
	appender := p.storage.Appender(t.Context())
	for name, f := range families {
		for _, m := range f.GetMetric() {
			series := []string{model.MetricNameLabel, name, "job", "sqlbrain", "instance", "a"}
			for _, l := range m.GetLabel() {
				series = append(series, l.GetName(), l.GetValue())
			}
			var value float64
			switch {
			case m.GetCounter() != nil:
				value = m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				value = m.GetGauge().GetValue()
			default:
				continue
			}
			_, err := appender.Append(0, labels.FromStrings(series...), p.last.UnixMilli(), value)
			require.NoError(t, err)
		}
	}
	require.NoError(t, appender.Commit())
	p.ready = len(families["etcd_server_healthcheck"].GetMetric()) > 0
}
