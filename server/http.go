package server

import (
	"net/http"

	"github.com/sqlbrain/sqlbrain/server/status"
	"github.com/sqlbrain/sqlbrain/server/transport"
)

// clientHandler serves everything on a client port that is not gRPC; gateway is
// nil where it is switched off.
func clientHandler(cfg Config, endpoints status.Endpoints, gateway http.Handler) (http.Handler, error) {
	mux := http.NewServeMux()
	endpoints.Handle(mux)
	mux.Handle("/version", status.VersionHandler(cfg.versions()))
	if gateway != nil {
		mux.Handle("/v3/", gateway)
		mux.Handle("/v3beta/", gateway)
	}
	return transport.AllowOrigins(cfg.CORS, mux)
}
