package server

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// versionBody is what /version answers.
const versionBody = `{"etcdserver":"` + EtcdVersion + `","etcdcluster":"` + ClusterVersion + `","storage":"` + StorageVersion + `"}`

// clientHandler serves everything on a client port that is not gRPC; gateway is
// nil where it is switched off.
func clientHandler(cfg Config, health *healthEndpoints, gateway http.Handler) (http.Handler, error) {
	mux := http.NewServeMux()
	registerMetrics(mux, cfg)
	registerProfiles(mux, cfg)
	health.register(mux)
	mux.HandleFunc("/version", getOnly(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		writeBody(w, []byte(versionBody))
	}))
	if gateway != nil {
		mux.Handle("/v3/", gateway)
		// etcd's older prefix leads to the same.
		mux.Handle("/v3beta/", replacePrefix("/v3beta/", "/v3/", gateway))
	}
	return allowOrigins(cfg.CORS, mux)
}

// metricsHandler serves a metrics port.
func metricsHandler(cfg Config, health *healthEndpoints) http.Handler {
	mux := http.NewServeMux()
	registerMetrics(mux, cfg)
	registerProfiles(mux, cfg)
	health.register(mux)
	return mux
}

func registerMetrics(mux *http.ServeMux, cfg Config) {
	mux.Handle("/metrics", promhttp.HandlerFor(cfg.Registry, promhttp.HandlerOpts{
		ErrorLog: slogPrinter{cfg.Logger},
		Registry: cfg.Registry,
	}))
}

func newHTTPServer(cfg *Config, h http.Handler) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: cfg.headTimeout,
		IdleTimeout:       cfg.idleTimeout,
		MaxHeaderBytes:    maxHeaderBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // clients' mistakes
		Protocols:         new(http.Protocols),
		ConnContext:       rememberTLS,
	}
	s.Protocols.SetHTTP1(true)
	// TLS, if any, was taken off before the connection came here.
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// getOnly answers other methods than GET with 405.
func getOnly(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", http.MethodGet)
			http.Error(w, "Method Not Allowed", http.StatusMethodNotAllowed)
			return
		}
		h(w, r)
	}
}

// allowHosts refuses requests without TLS that call the server by another name than those
// listed, as etcd does: a page of a site whose name was made to lead here could read what the
// server answers.
func allowHosts(hosts []string, h http.Handler) http.Handler {
	if len(hosts) == 0 || slices.Contains(hosts, "*") {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if tlsOf(r) == nil && !slices.Contains(hosts, host) {
			http.Error(w, fmt.Sprintf("The server does not know the name %q that it was called by, and so it may be another site's, by DNS rebinding.\n"+
				"Call it by https, or name it: --host-whitelist.", host), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// allowOrigins adds the headers browsers ask for before they let a page of
// another origin call, and answers their preliminary requests. Pages of origins that are not
// listed are refused what changes something: browsers ask first for some requests only, and of
// the others they keep just the answer back.
func allowOrigins(origins []string, h http.Handler) (http.Handler, error) {
	if !slices.Contains(origins, "*") {
		refuse := http.NewCrossOriginProtection()
		for _, origin := range origins {
			if err := refuse.AddTrustedOrigin(origin); err != nil {
				return nil, fmt.Errorf("server: CORS: %w", err)
			}
		}
		h = refuse.Handler(h)
	}
	if len(origins) == 0 {
		return h, nil
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		origin := "*"
		if !slices.Contains(origins, "*") {
			origin = r.Header.Get("Origin")
		}
		if origin == "*" || slices.Contains(origins, origin) {
			w.Header().Add("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE")
			w.Header().Add("Access-Control-Allow-Origin", origin)
			w.Header().Add("Access-Control-Allow-Headers", "accept, content-type, authorization")
		}
		if r.Method == http.MethodOptions {
			w.WriteHeader(http.StatusOK)
			return
		}
		h.ServeHTTP(w, r)
	}), nil
}

func replacePrefix(old, replacement string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = replacement + strings.TrimPrefix(r.URL.Path, old)
		h.ServeHTTP(w, r)
	})
}

// writeBody writes the whole body. An error means that the client went away, and
// there is nobody left to tell.
func writeBody(w http.ResponseWriter, body []byte) {
	_, _ = w.Write(body)
}
