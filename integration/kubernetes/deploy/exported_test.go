package deploy

import (
	"context"
	"log/slog"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server"
	"github.com/sqlbrain/sqlbrain/server/audit"
	"github.com/sqlbrain/sqlbrain/server/backup"
	"github.com/sqlbrain/sqlbrain/server/cluster/node"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

// metrics are the names of what a server exports, as they are queried, with their
// labels.
type metrics map[string]map[string]bool

// Added by Prometheus when it scrapes, and evaluates rules.
var scraped = metrics{"up": {}, "ALERTS": {"alertname": true, "alertstate": true}}

var targetLabels = []string{"job", "instance"}

// description parses the String of a prometheus.Desc, which has no accessors.
var description = regexp.MustCompile(`^Desc\{fqName: "([^"]+)", .* constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// exported returns what a member of a cluster exports, also what has no value yet,
// as errors do that have not happened.
func exported(t *testing.T) metrics {
	registry := openMember(t)
	all := maps.Clone(scraped)
	for _, d := range describe(registry) {
		found := description.FindStringSubmatch(d)
		require.NotNil(t, found, "a description of another form: %s", d)
		labels := make(map[string]bool)
		for _, l := range strings.Split(found[2], ",") {
			name, _, _ := strings.Cut(l, "=")
			labels[name] = true
		}
		for _, l := range strings.Split(found[3], ",") {
			labels[l] = true
		}
		delete(labels, "")
		all[found[1]] = labels
	}
	families, err := registry.Gather()
	require.NoError(t, err)
	for _, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		labels := all[f.GetName()]
		require.NotNil(t, labels, "%s is not described", f.GetName())
		delete(all, f.GetName())
		buckets := maps.Clone(labels)
		buckets["le"] = true
		all[f.GetName()+"_bucket"], all[f.GetName()+"_sum"], all[f.GetName()+"_count"] = buckets, labels, labels
	}
	return all
}

func describe(c prometheus.Collector) (all []string) {
	descriptions := make(chan *prometheus.Desc)
	go func() {
		defer close(descriptions)
		c.Describe(descriptions)
	}()
	for d := range descriptions {
		all = append(all, d.String())
	}
	return all
}

// openMember puts together what `sqlbrain serve` does in a cluster. The member is
// alone, on SQLite: metrics of the store and of the cluster are the same there.
func openMember(t *testing.T) *prometheus.Registry {
	ctx, registry := t.Context(), prometheus.NewRegistry()
	store := sqldbtest.Opener(engines.OpenDB).Store(t, sqldbtest.SQLiteURL(t), sqlstore.Options{Registerer: registry})

	backup.NewMetrics(registry)
	own := node.DefaultConfig()
	own.Store, own.Name, own.Version = store, "n1", "test"
	own.Registerer, own.Replica.Registerer = registry, registry
	own.Replica.QuotaBytes = 1 << 30 // without a quota there is no metric of it
	n, err := node.Join(ctx, own)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close(context.WithoutCancel(ctx))) })
	audited, err := audit.Open(audit.Config{To: audit.ToLog, Logger: slog.New(slog.DiscardHandler), Registerer: registry})
	require.NoError(t, err)
	t.Cleanup(audited.Close)
	cfg := server.DefaultConfig()
	cfg.Audit, cfg.Name, cfg.ListenClientURLs, cfg.Registry = audited, "n1", []string{"http://127.0.0.1:0"}, registry
	cfg.PeerURLs = nil
	cfg.Members, cfg.PeerNode, cfg.Router, cfg.Mover = n.Members(), node.Peer{Node: n}, node.Connection{Node: n}, n
	s, err := server.New(cfg, n.Replica())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return registry
}
