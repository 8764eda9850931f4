package metric

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/stretchr/testify/require"
)

func TestPublishedMetricsAreGatheredUntilTheyAreWithdrawn(t *testing.T) {
	all := prometheus.NewPedanticRegistry()
	open := func() (func(), error) {
		own := prometheus.NewRegistry()
		promauto.With(own).NewCounter(prometheus.CounterOpts{Name: "writes_total"}).Add(3)
		promauto.With(own).NewGaugeVec(prometheus.GaugeOpts{Name: "state"}, []string{"of"}).WithLabelValues("x").Set(1)
		return Publish(all, own)
	}
	withdraw, err := open()
	require.NoError(t, err)
	families, err := all.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)
	require.Equal(t, "writes_total", families[1].GetName())
	require.InDelta(t, 3, families[1].Metric[0].GetCounter().GetValue(), 0)

	failed, err := open()
	require.Error(t, err, "the same names twice")
	failed() // must leave the metrics of the first alone
	families, err = all.Gather()
	require.NoError(t, err)
	require.Len(t, families, 2)

	withdraw()
	families, err = all.Gather()
	require.NoError(t, err)
	require.Empty(t, families)
	_, err = open()
	require.NoError(t, err)
}

func TestPublishWithoutARegistererDoesNothing(t *testing.T) {
	withdraw, err := Publish(nil, prometheus.NewRegistry())
	require.NoError(t, err)
	withdraw()
}
