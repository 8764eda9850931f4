package server

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	electiongw "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw"
	lockgw "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

// newGateway returns what translates JSON over HTTP into gRPC calls.
func newGateway(inside *inProcess, maxMessageBytes int) (http.Handler, error) {
	conn, err := inside.connect()
	if err != nil {
		return nil, err
	}
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, &runtime.JSONPb{
		MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
		UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
	}))
	for _, register := range []func(context.Context, *runtime.ServeMux, *grpc.ClientConn) error{
		gw.RegisterKVHandler,
		gw.RegisterWatchHandler,
		gw.RegisterLeaseHandler,
		gw.RegisterClusterHandler,
		gw.RegisterMaintenanceHandler,
		gw.RegisterAuthHandler,
		lockgw.RegisterLockHandler,
		electiongw.RegisterElectionHandler,
	} {
		// The context bounds the registration only.
		if err := register(context.Background(), mux, conn); err != nil {
			return nil, fmt.Errorf("server: gateway: %w", err)
		}
	}
	return boundBodies(maxMessageBytes, mux), nil
}

// endlessBodies are the paths whose body is a stream of requests.
var endlessBodies = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// boundBodies refuses bodies that cannot be the JSON of a message of maxBytes
// bytes, before they are read into memory: base64 makes bytes a third longer.
func boundBodies(maxBytes int, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !endlessBodies[r.URL.Path] {
			r.Body = http.MaxBytesReader(w, r.Body, 2*int64(maxBytes))
		}
		h.ServeHTTP(w, r)
	})
}

// refuseNames refuses clients whose certificate names a user while authentication is on, as
// etcd does: the gateway's calls do not have it, and would be nobody's or a token's.
func refuseNames(authEnabled func() bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := tlsOf(r); c != nil && authEnabled() {
			for _, chain := range c.ConnectionState().VerifiedChains {
				if len(chain) > 0 && chain[0].Subject.CommonName != "" {
					http.Error(w, "CommonName of client sending a request against gateway will be ignored and not used as expected", http.StatusBadRequest)
					return
				}
			}
		}
		h.ServeHTTP(w, r)
	})
}

// slogPrinter logs what libraries print.
type slogPrinter struct{ log *slog.Logger }

func (p slogPrinter) Println(v ...any) { p.log.Error(fmt.Sprint(v...)) }
