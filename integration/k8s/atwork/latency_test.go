package atwork

import (
	"bytes"
	"math"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/k8s/internal/controlplane"
)

// metrics are the metrics of a program's /metrics page, by name.
type metrics map[string]*dto.MetricFamily

func metricsOf(t *testing.T, api *controlplane.APIServer) metrics {
	t.Helper()
	text, err := api.Get(t.Context(), "/metrics")
	require.NoError(t, err)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	require.NoError(t, err)
	return families
}

// histogram counts requests by how long they took. Its buckets are cumulative.
type histogram struct {
	bounds []float64 // seconds
	counts []uint64
	count  uint64
	sum    float64 // seconds
}

// histograms sums those of a metric that wanted accepts, by the value of a label.
func (m metrics) histograms(t *testing.T, name, label string,
	wanted func(labels map[string]string) bool) map[string]*histogram {
	t.Helper()
	sums := map[string]*histogram{}
	family := m[name]
	require.NotNil(t, family, name)
	for _, one := range family.GetMetric() {
		labels := labelsOf(one)
		if !wanted(labels) {
			continue
		}
		h := sums[labels[label]]
		if h == nil {
			h = &histogram{}
			sums[labels[label]] = h
		}
		h.add(t, one.GetHistogram())
	}
	return sums
}

func labelsOf(m *dto.Metric) map[string]string {
	labels := map[string]string{}
	for _, pair := range m.GetLabel() {
		labels[pair.GetName()] = pair.GetValue()
	}
	return labels
}

func (h *histogram) add(t *testing.T, d *dto.Histogram) {
	t.Helper()
	if h.bounds == nil {
		for _, b := range d.GetBucket() {
			h.bounds = append(h.bounds, b.GetUpperBound())
		}
		h.counts = make([]uint64, len(h.bounds))
	}
	require.Len(t, d.GetBucket(), len(h.bounds))
	for i, b := range d.GetBucket() {
		h.counts[i] += b.GetCumulativeCount()
	}
	h.count += d.GetSampleCount()
	h.sum += d.GetSampleSum()
}

// quantile is Prometheus' histogram_quantile: linear within a bucket. In the last
// one it is that bucket's lower bound.
func (h *histogram) quantile(q float64) time.Duration {
	if h.count == 0 {
		return 0
	}
	rank := q * float64(h.count)
	below, lower := uint64(0), 0.0
	for i, bound := range h.bounds {
		if float64(h.counts[i]) >= rank && !math.IsInf(bound, 1) {
			in := float64(h.counts[i] - below)
			return seconds(lower + (bound-lower)*(rank-float64(below))/in)
		}
		if !math.IsInf(bound, 1) {
			below, lower = h.counts[i], bound
		}
	}
	return seconds(lower)
}

func (h *histogram) mean() time.Duration {
	if h.count == 0 {
		return 0
	}
	return seconds(h.sum / float64(h.count))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// latency is a histogram in a few numbers; times are in milliseconds.
type latency struct {
	Requests uint64  `json:"requests"`
	Mean     float64 `json:"mean_ms"`
	P50      float64 `json:"p50_ms"`
	P99      float64 `json:"p99_ms"`
}

func (h *histogram) latency() latency {
	return latency{h.count, milliseconds(h.mean()), milliseconds(h.quantile(0.5)), milliseconds(h.quantile(0.99))}
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func latencies(histograms map[string]*histogram) map[string]latency {
	l := map[string]latency{}
	for name, h := range histograms {
		if h.count > 0 {
			l[name] = h.latency()
		}
	}
	return l
}

// apiLatencies are those of the API server's requests, by verb. Requests that are
// open as long as the client likes, watches before all, are left out.
func (m metrics) apiLatencies(t *testing.T) map[string]latency {
	t.Helper()
	return latencies(m.histograms(t, "apiserver_request_duration_seconds", "verb", func(l map[string]string) bool {
		return l["resource"] != "" && l["verb"] != "WATCH" && l["verb"] != "CONNECT"
	}))
}

// storeLatencies are those of the API server's requests to the store, by kind.
func (m metrics) storeLatencies(t *testing.T) map[string]latency {
	t.Helper()
	return latencies(m.histograms(t, "etcd_request_duration_seconds", "operation",
		func(map[string]string) bool { return true }))
}

func TestQuantile(t *testing.T) {
	h := &histogram{bounds: []float64{0.1, 0.2, 0.4, math.Inf(1)}, counts: []uint64{10, 20, 20, 40}, count: 40}
	require.Equal(t, 50*time.Millisecond, h.quantile(0.125))
	require.Equal(t, 150*time.Millisecond, h.quantile(0.375))
	require.Equal(t, 200*time.Millisecond, h.quantile(0.5))
	require.Equal(t, 400*time.Millisecond, h.quantile(0.9))
	require.Zero(t, (&histogram{}).quantile(0.5))
}
