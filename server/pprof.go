package server

import (
	"net/http"
	"net/http/pprof"
)

// registerProfiles serves the runtime's profiles, which tell much about a process
// to whoever can reach the port: only where the configuration asks for it. The
// command line is left out, because it may hold the database's password.
func registerProfiles(mux *http.ServeMux, cfg Config) {
	if !cfg.EnablePprof {
		return
	}
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
}
