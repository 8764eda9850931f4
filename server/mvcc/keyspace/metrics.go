package keyspace

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// Observe creates metrics of the view on r, which read the view when they are collected.
func (v *View) Observe(r prometheus.Registerer) {
	for name, g := range map[string]struct {
		help string
		get  func(Stats) int
	}{
		"sqlbrain_record_cache_bytes": {"Bytes in the cache of current records.",
			func(s Stats) int { return s.RecordBytes }},
		"sqlbrain_range_cache_bytes": {"Bytes in the cache of current ranges.",
			func(s Stats) int { return s.SegmentBytes }},
	} {
		promauto.With(r).NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: g.help},
			func() float64 { return float64(g.get(v.Stats())) })
	}
	promauto.With(r).NewCounterFunc(prometheus.CounterOpts{
		Name: "sqlbrain_range_cache_evictions_total", Help: "Segments of ranges given up for others.",
	}, func() float64 { return float64(v.Stats().Evictions) })
}
