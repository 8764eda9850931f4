package status

import (
	"fmt"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestClientVersionsAreBounded(t *testing.T) {
	c := NewClientRequests(prometheus.NewRegistry())
	for i := range maxClientVersions + 10 {
		c.Count("unary", fmt.Sprint(i))
	}
	metrics := make(chan prometheus.Metric, 2*maxClientVersions)
	c.vec.Collect(metrics)
	require.Len(t, metrics, maxClientVersions+1)
}

func TestClientVersionsLookLikeVersions(t *testing.T) {
	c := NewClientRequests(prometheus.NewRegistry())
	good := []string{"unknown", "3.7", "3.7.3-rc.1+build_2", strings.Repeat("1", maxClientVersionLength)}
	for _, version := range append(good, "", "3 7", "3.7\n", "<b>", "3,7", "ä",
		strings.Repeat("1", maxClientVersionLength+1)) {
		c.Count("unary", version)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(c.vec)
	families, err := registry.Gather()
	require.NoError(t, err)
	labels := map[string]float64{}
	for _, m := range families[0].GetMetric() {
		labels[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
	}
	want := map[string]float64{"other": 7}
	for _, version := range good {
		want[version] = 1
	}
	require.Equal(t, want, labels)
}
