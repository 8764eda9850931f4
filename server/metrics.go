package server

import (
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/sqlbrain/sqlbrain/server/backend"
)

// Metrics have etcd's names where they mean the same, so that dashboards and
// alerts made for etcd go on working.

// kvCounters counts the operations on keys, those inside transactions too.
type kvCounters struct {
	ranges, puts, deletes, txns prometheus.Counter
}

func newKVCounters() *kvCounters {
	return &kvCounters{
		ranges:  counter("etcd_mvcc_range_total", "Total number of ranges seen by this member."),
		puts:    counter("etcd_mvcc_put_total", "Total number of puts seen by this member."),
		deletes: counter("etcd_mvcc_delete_total", "Total number of deletes seen by this member."),
		txns:    counter("etcd_mvcc_txn_total", "Total number of transactions of several operations seen by this member."),
	}
}

func (c *kvCounters) collectors() []prometheus.Collector {
	return []prometheus.Collector{c.ranges, c.puts, c.deletes, c.txns}
}

func (c *kvCounters) countTxn(r *backend.TxnResult) {
	if c.countOps(r.Results) > 1 {
		c.txns.Inc()
	}
}

func (c *kvCounters) countOps(results []backend.OpResult) (n int) {
	for i := range results {
		switch r := &results[i]; {
		case r.Range != nil:
			c.ranges.Inc()
			n++
		case r.Put != nil:
			c.puts.Inc()
			n++
		case r.Delete != nil:
			c.deletes.Inc()
			n++
		case r.Txn != nil:
			n += c.countOps(r.Txn.Results)
		}
	}
	return n
}

// Clients choose the label of their version: these bound how many there are, and how
// long each is.
const (
	maxClientVersions      = 64
	maxClientVersionLength = 32
)

// clientRequests counts calls by the API version their client names.
type clientRequests struct {
	vec *prometheus.CounterVec

	mu       sync.Mutex
	versions map[string]struct{}
}

func newClientRequests() *clientRequests {
	return &clientRequests{
		vec: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_server_client_requests_total",
			Help: "The total number of client requests per client version.",
		}, []string{"type", "client_api_version"}),
		versions: make(map[string]struct{}),
	}
}

func (c *clientRequests) count(kind, version string) {
	c.mu.Lock()
	if _, ok := c.versions[version]; !ok {
		if len(c.versions) < maxClientVersions && isVersion(version) {
			c.versions[version] = struct{}{}
		} else {
			version = "other"
		}
	}
	c.mu.Unlock()
	c.vec.WithLabelValues(kind, version).Inc()
}

// isVersion reports whether s looks like a version, such as 3.7 or v1.2.3-rc.1+build.
func isVersion(s string) bool {
	return s != "" && len(s) <= maxClientVersionLength && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && !strings.ContainsRune(".-+_", r)
	})
}

// clientBytes counts the bytes of gRPC messages, as etcd does where they are written
// and read: a stats.Handler would have gRPC copy the metadata of every call for it.
type clientBytes struct{ received, sent prometheus.Counter }

func newClientBytes() *clientBytes {
	return &clientBytes{
		received: counter("etcd_network_client_grpc_received_bytes_total", "The total number of bytes received from grpc clients."),
		sent:     counter("etcd_network_client_grpc_sent_bytes_total", "The total number of bytes sent to grpc clients."),
	}
}

// counted returns codec with its messages counted.
func (c *clientBytes) counted(codec encoding.CodecV2) encoding.CodecV2 {
	return countingCodec{codec, c}
}

type countingCodec struct {
	encoding.CodecV2
	bytes *clientBytes
}

func (c countingCodec) Marshal(v any) (mem.BufferSlice, error) {
	out, err := c.CodecV2.Marshal(v)
	c.bytes.sent.Add(float64(out.Len()))
	return out, err
}

func (c countingCodec) Unmarshal(data mem.BufferSlice, v any) error {
	c.bytes.received.Add(float64(data.Len()))
	return c.CodecV2.Unmarshal(data, v)
}

// statusCollector turns the backend's status into gauges when asked for them.
type statusCollector struct {
	id     identity
	gauges []statusGauge
}

type statusGauge struct {
	desc  *prometheus.Desc
	value func(backend.Status) float64
}

func newStatusCollector(id identity) *statusCollector {
	c := &statusCollector{id: id}
	add := func(name, help string, value func(backend.Status) float64) {
		c.gauges = append(c.gauges, statusGauge{prometheus.NewDesc(name, help, nil, nil), value})
	}
	serving := func(s backend.Status) float64 {
		if s.Serving != nil {
			return 0
		}
		return 1
	}
	add("etcd_server_has_leader", "Whether or not a leader exists. 1 is existence, 0 is not.", serving)
	add("etcd_server_is_leader", "Whether or not this member is a leader. 1 if is, 0 otherwise.", func(s backend.Status) float64 {
		if s.Leader != id.MemberID() {
			return 0
		}
		return 1
	})
	add("etcd_server_is_learner", "Whether or not this member is a learner. 1 if is, 0 otherwise.",
		func(backend.Status) float64 { return 0 })
	add("etcd_server_proposals_committed_total", "The total number of commits.",
		func(s backend.Status) float64 { return float64(s.Sequence) })
	add("etcd_server_quota_backend_bytes", "Current backend storage quota size in bytes.",
		func(s backend.Status) float64 { return float64(s.QuotaBytes) })
	add("etcd_mvcc_db_total_size_in_bytes", "Total size of the underlying database in bytes.",
		func(s backend.Status) float64 { return float64(s.DBSize) })
	add("etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of the underlying database that are in use.",
		func(s backend.Status) float64 { return float64(s.DBSizeInUse) })
	add("etcd_debugging_mvcc_current_revision", "The current revision of store.",
		func(s backend.Status) float64 { return float64(s.Revision) })
	add("etcd_debugging_mvcc_compact_revision", "The revision of the last compaction in store.",
		// A store that was never compacted has -1, and etcd's gauge 0.
		func(s backend.Status) float64 { return float64(max(s.CompactRevision, 0)) })
	return c
}

func (c *statusCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, g := range c.gauges {
		ch <- g.desc
	}
}

func (c *statusCollector) Collect(ch chan<- prometheus.Metric) {
	s := c.id.Status()
	for _, g := range c.gauges {
		ch <- prometheus.MustNewConstMetric(g.desc, prometheus.GaugeValue, g.value(s))
	}
}

// versionCollectors are gauges that always are 1 and say something in a label.
func versionCollectors(id identity, product string) []prometheus.Collector {
	labelled := func(name, help, label, value string) prometheus.Collector {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: prometheus.Labels{label: value}})
		g.Set(1)
		return g
	}
	return []prometheus.Collector{
		labelled("etcd_server_version", "The version of etcd that is offered to clients.", "server_version", EtcdVersion),
		labelled("etcd_cluster_version", "The version of etcd that the cluster offers to clients.", "cluster_version", ClusterVersion[:len("3.7")]),
		labelled("etcd_server_go_version", "Which Go version server is running with.", "server_go_version", runtime.Version()),
		labelled("etcd_server_id", "Member ID in hexadecimal format.", "server_id", fmt.Sprintf("%x", id.MemberID())),
		labelled("sqlbrain_build_info", "The version of sqlbrain that is running.", "version", product),
	}
}

func processCollectors() []prometheus.Collector {
	return []prometheus.Collector{
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	}
}

func counter(name, help string) prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
