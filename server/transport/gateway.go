package transport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/etcdserverpb/gw"
	electiongw "go.etcd.io/etcd/server/v3/etcdserver/api/v3election/v3electionpb/gw"
	lockgw "go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb/gw"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/encoding/protojson"
)

// NewGateway returns the handler that translates JSON over HTTP, below /v3/ and etcd's older /v3beta/, into gRPC
// calls over inside. maxMessageBytes bounds their requests.
func NewGateway(inside *InProcess, maxMessageBytes int) (http.Handler, error) {
	conn, err := inside.Connect()
	if err != nil {
		return nil, err
	}
	// base64 makes bytes a third longer.
	maxJSONBytes := 2 * int64(maxMessageBytes)
	mux := runtime.NewServeMux(runtime.WithMarshalerOption(runtime.MIMEWildcard, boundedJSON{
		JSONPb: &runtime.JSONPb{
			MarshalOptions:   protojson.MarshalOptions{UseProtoNames: true},
			UnmarshalOptions: protojson.UnmarshalOptions{DiscardUnknown: true},
		},
		maxBytes: maxJSONBytes,
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
	return currentPaths(knownRemotes(boundBodies(maxJSONBytes, mux))), nil
}

// unixRemote is the address of clients of Unix sockets, which have none, as that of a host.
const unixRemote = "@:0"

// knownRemotes gives every request the address of a host. The gateway appends that to x-forwarded-for, but
// nothing for clients of Unix sockets, and then the last address would be one that the client chose.
func knownRemotes(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, _, err := net.SplitHostPort(r.RemoteAddr); err != nil {
			r.RemoteAddr = unixRemote
		}
		h.ServeHTTP(w, r)
	})
}

// boundedJSON decodes values of at most maxBytes bytes, with the space before them. The
// bound holds for each value of a stream. Texts of errors are bounded too: they quote
// the value, and the generated code writes them to gRPC's log.
type boundedJSON struct {
	*runtime.JSONPb
	maxBytes int64
}

// maxJSONErrorBytes bounds the error text about a value that cannot be decoded.
const maxJSONErrorBytes = 512

var errJSONTooLarge = errors.New("sqlbrain: request body too large")

func (j boundedJSON) NewDecoder(r io.Reader) runtime.Decoder {
	in := &io.LimitedReader{R: r}
	d := j.JSONPb.NewDecoder(in)
	return runtime.DecoderFunc(func(v any) error {
		in.N = j.maxBytes
		err := d.Decode(v)
		if err == nil {
			if stream, ok := r.(endlessBody); ok {
				stream.used()
			}
			return restOf(r)
		}
		if body, ok := r.(endlessBody); ok && (in.N <= 0 || !errors.Is(err, io.EOF)) {
			go body.drop()
		}
		if in.N <= 0 {
			return errJSONTooLarge
		}
		if text := err.Error(); len(text) > maxJSONErrorBytes {
			return errors.New(strings.ToValidUTF8(text[:maxJSONErrorBytes], "") + "…")
		}
		return err
	})
}

// endlessBodies are the paths whose body is a stream of requests.
var endlessBodies = map[string]bool{"/v3/watch": true, "/v3/lease/keepalive": true}

// boundBodies ends bodies after maxBytes, unless they are streams.
func boundBodies(maxBytes int64, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if endlessBodies[r.URL.Path] {
			r.Body = endlessBody{r.Body}
		} else {
			r.Body = boundedBody{http.MaxBytesReader(w, r.Body, maxBytes)}
		}
		h.ServeHTTP(w, r)
	})
}

// boundedBody is the body of one request.
type boundedBody struct{ io.ReadCloser }

// restOf reads and drops what follows the value of a boundedBody. It returns errJSONTooLarge if the body is too large:
// the server does not notice the end of a connection of HTTP/1 while a body is not read to its end, and the request may
// wait.
func restOf(r io.Reader) error {
	if body, ok := r.(boundedBody); ok {
		_, err := io.Copy(io.Discard, body)
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			return errJSONTooLarge
		}
	}
	return nil
}

// endlessBody is the body of a stream of requests.
type endlessBody struct{ io.ReadCloser }

// used says that the server does not hold what was read.
func (b endlessBody) used() {
	if counted, ok := b.ReadCloser.(*body); ok {
		counted.used()
	}
}

// drop reads and drops the rest of a body whose requests are no longer read. While nothing reads from a connection of
// HTTP/1, the server does not notice that it has ended, and the stream of answers remains.
func (b endlessBody) drop() {
	rest := b.ReadCloser
	if counted, ok := rest.(*body); ok {
		counted.used()
		rest = counted.ReadCloser // what is dropped is not held
	}
	_, _ = io.Copy(io.Discard, rest) // the error ends the request's context
}

// currentPaths leads etcd's older prefix to the current one.
func currentPaths(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if rest, ok := strings.CutPrefix(r.URL.Path, "/v3beta/"); ok {
			r.URL.Path = "/v3/" + rest
		}
		h.ServeHTTP(w, r)
	})
}

// RefuseNames refuses clients whose certificate names a user while authentication is on, as
// etcd does: the gateway's calls do not carry the certificate, and would have no user or a token's.
func RefuseNames(authEnabled func() bool, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := tlsOf(r); c != nil && authEnabled() {
			for _, chain := range c.ConnectionState().VerifiedChains {
				if len(chain) > 0 && chain[0].Subject.CommonName != "" {
					http.Error(w, "CommonName of client sending a request against gateway will be ignored and not used as expected",
						http.StatusBadRequest)
					return
				}
			}
		}
		h.ServeHTTP(w, r)
	})
}
