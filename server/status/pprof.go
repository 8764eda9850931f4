package status

import (
	"net/http"
	"net/http/pprof"
)

// registerProfiles serves the runtime's profiles. Every client that reaches the port can read
// them. The command line is left out, because it may hold
// the database's password.
func registerProfiles(mux *http.ServeMux) {
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
