package server

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protojson"
)

// gateway translates JSON over HTTP into gRPC calls. It reaches the gRPC server
// through a connection inside the process, so that it needs neither a port nor a
// certificate of its own, and its calls pass what all calls pass.
type gateway struct {
	listener *bufconn.Listener
	conn     *grpc.ClientConn
	handler  http.Handler
}

const gatewayBuffer = 256 * 1024

func newGateway(ctx context.Context, maxMessageBytes int) (*gateway, error) {
	l := bufconn.Listen(gatewayBuffer)
	conn, err := grpc.NewClient("passthrough:///gateway",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(math.MaxInt32)),
	)
	if err != nil {
		return nil, fmt.Errorf("server: gateway: %w", err)
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
	} {
		if err := register(ctx, mux, conn); err != nil {
			return nil, fmt.Errorf("server: gateway: %w", err)
		}
	}
	return &gateway{listener: l, conn: conn, handler: boundBodies(maxMessageBytes, mux)}, nil
}

func (g *gateway) close(log *slog.Logger) {
	if err := g.conn.Close(); err != nil {
		log.Warn("closing the gateway's connection", "error", err)
	}
	if err := g.listener.Close(); err != nil {
		log.Warn("closing the gateway's listener", "error", err)
	}
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

// slogPrinter logs what libraries print.
type slogPrinter struct{ log *slog.Logger }

func (p slogPrinter) Println(v ...any) { p.log.Error(fmt.Sprint(v...)) }
