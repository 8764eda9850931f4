package console

import (
	"maps"
	"math"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// metricsBody are the figures that the overview shows, under the console's names.
type metricsBody struct {
	Values     map[string]float64   `json:"values"`
	Histograms map[string]histogram `json:"histograms"`
	SQL        []statementBody      `json:"sql"`
}

type histogram struct {
	Count uint64  `json:"count"`
	Sum   float64 `json:"sum"`
}

type statementBody struct {
	Statement string `json:"statement"`
	histogram
}

// values are the metrics that are one number; those with labels are added up.
var values = map[string]string{
	"etcd_server_client_requests_total":             "requests",
	"etcd_mvcc_range_total":                         "ranges",
	"etcd_mvcc_put_total":                           "puts",
	"etcd_mvcc_delete_total":                        "deletes",
	"etcd_mvcc_txn_total":                           "txns",
	"etcd_network_client_grpc_sent_bytes_total":     "sent_bytes",
	"etcd_network_client_grpc_received_bytes_total": "received_bytes",
	"etcd_debugging_mvcc_watcher_total":             "watchers",
	"etcd_debugging_mvcc_watch_stream_total":        "watch_streams",
	"etcd_debugging_mvcc_slow_watcher_total":        "slow_watchers",
	"etcd_debugging_mvcc_events_total":              "events",
	"sqlbrain_watch_ring_events":                    "ring_events",
	"sqlbrain_watch_ring_bytes":                     "ring_bytes",
	"sqlbrain_leases":                               "leases",
	"sqlbrain_request_queue":                        "queue",
	"sqlbrain_compaction_lag_revisions":             "compaction_lag",
	"sqlbrain_record_cache_bytes":                   "record_cache_bytes",
	"sqlbrain_range_cache_bytes":                    "range_cache_bytes",
	"sqlbrain_range_cache_hits_total":               "range_cache_hits",
	"sqlbrain_range_cache_misses_total":             "range_cache_misses",
	"sqlbrain_index_cache_entries":                  "index_cache_entries",
	"sqlbrain_commit_retries_total":                 "commit_retries",
	"process_start_time_seconds":                    "started",
	"process_resident_memory_bytes":                 "memory_bytes",
	"go_goroutines":                                 "goroutines",
}

var histograms = map[string]string{
	"sqlbrain_commit_changes":                    "batch",
	"sqlbrain_commit_duration_seconds":           "commit",
	"sqlbrain_request_pipeline_duration_seconds": "write",
}

const sqlMetric = "sqlbrain_sql_duration_seconds"

// gather reads the metrics of this process.
func gather(g prometheus.Gatherer) (metricsBody, error) {
	out := metricsBody{Values: map[string]float64{}, Histograms: map[string]histogram{}, SQL: []statementBody{}}
	families, err := g.Gather()
	if err != nil {
		return out, err
	}
	for _, f := range families {
		if name, ok := values[f.GetName()]; ok {
			for _, m := range f.Metric {
				out.Values[name] += number(m)
			}
		}
		if name, ok := histograms[f.GetName()]; ok && len(f.Metric) == 1 {
			out.Histograms[name] = histogramOf(f.Metric[0])
		}
		if f.GetName() != sqlMetric {
			continue
		}
		for _, m := range f.Metric {
			s := statementBody{histogram: histogramOf(m)}
			for _, l := range m.Label {
				if l.GetName() == "statement" {
					s.Statement = l.GetValue()
				}
			}
			out.SQL = append(out.SQL, s)
		}
	}
	return out, nil
}

// consoleFigure is above 0 if the process serves a console.
const consoleFigure = "console"

// Figures returns the figures of this process that other members show, by the console's names. served says whether it
// serves a console.
func Figures(g prometheus.Gatherer, n Node, served bool) (map[string]float64, error) {
	m, err := gather(g)
	if err != nil {
		return nil, err
	}
	return figuresOf(m, n.Status().Revision, served), nil
}

func figuresOf(m metricsBody, revision int64, served bool) map[string]float64 {
	figures := maps.Clone(m.Values)
	figures["revision"] = float64(revision)
	if served {
		figures[consoleFigure] = 1
	}
	return figures
}

func number(m *dto.Metric) float64 {
	return finite(m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue())
}

func histogramOf(m *dto.Metric) histogram {
	return histogram{m.GetHistogram().GetSampleCount(), finite(m.GetHistogram().GetSampleSum())}
}

// finite keeps out what JSON has no number for.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}
