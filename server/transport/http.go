package transport

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"time"
)

// MaxHeaderBytes bounds the headers of a request, and the metadata of a call.
const MaxHeaderBytes = 64 * 1024

// NewHTTPServer returns the server of h for connections of a Router or a Listener. headTimeout bounds the headers of a
// request, idleTimeout the wait for one.
func NewHTTPServer(h http.Handler, headTimeout, idleTimeout time.Duration) *http.Server {
	s := &http.Server{
		Handler:           h,
		ReadHeaderTimeout: headTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    MaxHeaderBytes,
		ErrorLog:          log.New(io.Discard, "", 0), // clients' mistakes
		Protocols:         new(http.Protocols),
		ConnContext:       rememberTLS,
	}
	s.Protocols.SetHTTP1(true)
	// TLS, if any, was taken off before the connection came here.
	s.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// AllowHosts refuses requests without TLS that call the server by another name than those
// listed, as etcd does: a page of a site whose name was made to lead here could read what the
// server answers.
func AllowHosts(hosts []string, h http.Handler) http.Handler {
	if len(hosts) == 0 || slices.Contains(hosts, "*") {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if tlsOf(r) == nil && !slices.Contains(hosts, host) {
			http.Error(w, fmt.Sprintf("The server does not know the name %q that it was called by, and so it may be another "+
				"site's, by DNS rebinding.\n"+
				"Call it by https, or name it: --host-whitelist.", host), http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// AllowOrigins adds the headers browsers ask for before they let a page of
// another origin call, and answers their preliminary requests. Pages of origins that are not
// listed are refused what changes something: browsers ask first for some requests only, and of
// the others they keep just the answer back.
func AllowOrigins(origins []string, h http.Handler) (http.Handler, error) {
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
