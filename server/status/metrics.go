package status

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"

	"github.com/sqlbrain/sqlbrain/server/replica"
)

// Metrics have etcd's names where they mean the same, so that dashboards and
// alerts made for etcd go on working.

// Clients choose the label of their version: these bound how many there are, and how
// long each is.
const (
	maxClientVersions      = 64
	maxClientVersionLength = 32
)

// ClientRequests counts calls by the API version their client names.
type ClientRequests struct {
	vec *prometheus.CounterVec

	mu       sync.Mutex
	versions map[string]struct{}
}

// NewClientRequests registers its metric with r.
func NewClientRequests(r prometheus.Registerer) *ClientRequests {
	return &ClientRequests{
		vec: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
			Name: "etcd_server_client_requests_total",
			Help: "The total number of client requests per client version.",
		}, []string{"type", "client_api_version"}),
		versions: make(map[string]struct{}),
	}
}

// Count counts a call of a kind, unary or stream. Versions beyond a bound count as other.
func (c *ClientRequests) Count(kind, version string) {
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

// ClientBytes counts the bytes of gRPC messages, as etcd does where they are written
// and read: a stats.Handler would have gRPC copy the metadata of every call for it.
type ClientBytes struct{ received, sent prometheus.Counter }

// NewClientBytes registers its metrics with r.
func NewClientBytes(r prometheus.Registerer) *ClientBytes {
	return &ClientBytes{
		received: counter(r, "etcd_network_client_grpc_received_bytes_total",
			"The total number of bytes received from grpc clients."),
		sent: counter(r, "etcd_network_client_grpc_sent_bytes_total", "The total number of bytes sent to grpc clients."),
	}
}

// Counted returns codec with its messages counted.
func (c *ClientBytes) Counted(codec encoding.CodecV2) encoding.CodecV2 {
	return countingCodec{codec, c}
}

type countingCodec struct {
	encoding.CodecV2
	bytes *ClientBytes
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

// registerStatus registers gauges of the node's status, which they ask for when they are read.
func registerStatus(r prometheus.Registerer, n Node) {
	add := func(name, help string, value func(replica.Status) float64) {
		promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help},
			func() float64 { return value(n.Status()) })
	}
	is := func(holds bool) float64 {
		if holds {
			return 1
		}
		return 0
	}
	add("etcd_server_has_leader", "Whether or not a leader exists. 1 is existence, 0 is not.",
		func(s replica.Status) float64 { return is(s.NotServing == nil) })
	add("etcd_server_is_leader", "Whether or not this member is a leader. 1 if is, 0 otherwise.",
		func(s replica.Status) float64 { return is(s.Leader == n.MemberID()) })
	add("etcd_server_is_learner", "Whether or not this member is a learner. 1 if is, 0 otherwise.",
		func(replica.Status) float64 { return 0 })
	add("etcd_server_proposals_committed_total", "The total number of commits.",
		func(s replica.Status) float64 { return float64(s.Sequence) })
	if n.Status().QuotaBytes > 0 { // etcd's alerts divide by it, and etcd always has a quota
		add("etcd_server_quota_backend_bytes", "Current backend storage quota size in bytes.",
			func(s replica.Status) float64 { return float64(s.QuotaBytes) })
	}
	add("etcd_mvcc_db_total_size_in_bytes", "Total size of the underlying database in bytes.",
		func(s replica.Status) float64 { return float64(s.DBSize) })
	add("etcd_mvcc_db_total_size_in_use_in_bytes", "Bytes of the underlying database that are in use.",
		func(s replica.Status) float64 { return float64(s.DBSizeInUse) })
	add("etcd_debugging_mvcc_current_revision", "The current revision of store.",
		func(s replica.Status) float64 { return float64(s.Revision) })
	add("etcd_debugging_mvcc_compact_revision", "The revision of the last compaction in store.",
		// A store that was never compacted has -1, and etcd's gauge 0.
		func(s replica.Status) float64 { return float64(max(s.CompactRevision, 0)) })
}

// Versions are the versions that clients and metrics show. Product is sqlbrain's.
type Versions struct{ Etcd, Cluster, Storage, Product string }

// Register registers the metrics of n's status, and gauges that are always 1 and have versions as labels.
func Register(r prometheus.Registerer, n Node, v Versions) {
	registerStatus(r, n)
	labelled := func(name, help, label, value string) {
		promauto.With(r).NewGauge(prometheus.GaugeOpts{Name: name, Help: help,
			ConstLabels: prometheus.Labels{label: value}}).Set(1)
	}
	labelled("etcd_server_version", "The version of etcd that is offered to clients.", "server_version", v.Etcd)
	labelled("etcd_cluster_version", "The version of etcd that the cluster offers to clients.", "cluster_version",
		v.Cluster[:len("3.7")])
	labelled("etcd_server_go_version", "Which Go version server is running with.", "server_go_version", runtime.Version())
	labelled("etcd_server_id", "Member ID in hexadecimal format.", "server_id", fmt.Sprintf("%x", n.MemberID()))
	labelled("sqlbrain_build_info", "The version of sqlbrain that is running.", "version", v.Product)
}

// RegisterProcess registers the metrics of the process, unless another part of the program has done so.
func RegisterProcess(r prometheus.Registerer) error {
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		var already prometheus.AlreadyRegisteredError
		if err := r.Register(c); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	return nil
}

func counter(r prometheus.Registerer, name, help string) prometheus.Counter {
	return promauto.With(r).NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}
