// Package metric publishes the metrics of a component while the component is open.
//
// A component creates its metrics with promauto.With on its own registry. The packages that
// it is made of get that registry as their prometheus.Registerer, and need not register or
// unregister anything themselves. The component then publishes the registry as a whole:
//
//	own := prometheus.NewRegistry()
//	commits := promauto.With(own).NewCounter(…)
//	withdraw, err := metric.Publish(cfg.Registerer, own)
//	…
//	withdraw() // when the component closes
package metric

import "github.com/prometheus/client_golang/prometheus"

// Publish registers all metrics of own with r, and returns what unregisters them, so that another
// component of the same kind may be opened. No metric may be added to own in between. Without r it
// does nothing. Its error is r's, if a metric of that name exists; withdraw is never nil.
func Publish(r prometheus.Registerer, own *prometheus.Registry) (withdraw func(), err error) {
	if r == nil {
		return func() {}, nil
	}
	if err := r.Register(own); err != nil {
		return func() {}, err
	}
	return func() { r.Unregister(own) }, nil
}
