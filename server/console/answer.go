package console

import (
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// endpoint answers a request with what becomes JSON, or an error, which becomes JSON
// as well.
type endpoint func(w http.ResponseWriter, r *http.Request) (any, error)

// bodyOverhead is what JSON adds to the value of a key in a body, beside base64.
const bodyOverhead = 64 << 10

func (h *Handler) answers(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, 2*int64(h.cfg.MaxRequestBytes)+bodyOverhead)
		out, err := e(w, r)
		code := http.StatusOK
		if err != nil {
			if r.Context().Err() != nil {
				err = errGone // nobody is left to read the answer
			}
			code, out = statusOf(err), map[string]string{"error": textOf(err)}
		}
		body, err := json.Marshal(out)
		if err != nil {
			h.cfg.Logger.Error("the console's answer", "path", r.URL.Path, "error", err)
			http.Error(w, `{"error":"internal error; the server's log says more"}`, http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(body) // an error means that the client went away
	})
}

// decode reads a body of JSON into to.
func decode(r *http.Request, to any) error {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return failure{http.StatusUnsupportedMediaType, "the body must be JSON"}
	}
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	err := d.Decode(to)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return failure{http.StatusRequestEntityTooLarge, rpctypes.ErrorDesc(rpctypes.ErrGRPCRequestTooLarge)}
	case err != nil:
		return badRequest("the body is not the JSON that was expected: " + err.Error())
	}
	return nil
}

// statuses are HTTP's names for gRPC's codes.
var statuses = map[codes.Code]int{
	codes.InvalidArgument:    http.StatusBadRequest,
	codes.OutOfRange:         http.StatusBadRequest,
	codes.FailedPrecondition: http.StatusBadRequest,
	codes.NotFound:           http.StatusNotFound,
	codes.PermissionDenied:   http.StatusForbidden,
	codes.Unauthenticated:    http.StatusUnauthorized,
	codes.ResourceExhausted:  http.StatusTooManyRequests,
	codes.Unavailable:        http.StatusServiceUnavailable,
	codes.DeadlineExceeded:   http.StatusGatewayTimeout,
	codes.Canceled:           http.StatusServiceUnavailable,
}

func statusOf(err error) int {
	var f failure
	if errors.As(err, &f) {
		return f.status
	}
	switch status.Convert(err).Message() {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty), rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed):
		return http.StatusUnauthorized // to log in helps
	}
	if code, ok := statuses[status.Code(err)]; ok {
		return code
	}
	return http.StatusInternalServerError
}

// textOf is what etcd says.
func textOf(err error) string { return status.Convert(err).Message() }
