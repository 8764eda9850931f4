package status

import (
	"fmt"
	"log/slog"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Endpoints are what a port serves to monitoring.
type Endpoints struct {
	Registry *prometheus.Registry
	Log      *slog.Logger
	Health   *Health
	Profiles bool // serve /debug/pprof/ too
}

// Handle adds the endpoints to mux.
func (e Endpoints) Handle(mux *http.ServeMux) {
	mux.Handle("/metrics", promhttp.HandlerFor(e.Registry,
		promhttp.HandlerOpts{ErrorLog: slogPrinter{e.Log}, Registry: e.Registry}))
	if e.Profiles {
		registerProfiles(mux)
	}
	e.Health.register(mux)
}

// VersionHandler answers as etcd's /version.
func VersionHandler(v Versions) http.Handler {
	body := fmt.Appendf(nil, `{"etcdserver":%q,"etcdcluster":%q,"storage":%q}`, v.Etcd, v.Cluster, v.Storage)
	return getOnly(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		writeBody(w, body)
	})
}

// slogPrinter logs what libraries print.
type slogPrinter struct{ log *slog.Logger }

func (p slogPrinter) Println(v ...any) { p.log.Error(fmt.Sprint(v...)) }
