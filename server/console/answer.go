package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"mime"
	"net/http"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// endpoint answers a request with what becomes JSON, or an error, which becomes JSON
// as well.
type endpoint func(w http.ResponseWriter, r *http.Request) (any, error)

// file is an answer that the browser saves, and sent one that was sent already.
type (
	file []byte
	sent struct{}
)

// bodyOverhead is what JSON adds to the value of a key in a body, in addition to base64.
const bodyOverhead = 64 << 10

func (h *Handler) answers(e endpoint) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Cache-Control", "no-store")
		r.Body = http.MaxBytesReader(w, r.Body, 2*int64(h.cfg.MaxRequestBytes)+bodyOverhead)
		out, err := e(w, r)
		code := http.StatusOK
		if err != nil {
			if r.Context().Err() != nil {
				err = errGone // the client has disconnected
			}
			code, out = statusOf(err), map[string]string{"error": textOf(err)}
		}
		switch content := out.(type) {
		case sent:
			return
		case file:
			w.Header().Set("Content-Type", "application/octet-stream")
			w.Header().Set("Content-Disposition", "attachment")
			_, _ = w.Write(content) // an error means that the client went away
			return
		}
		body, ready := out.(encoded)
		if !ready {
			if body, err = marshal(out); err != nil {
				h.cfg.Logger.Error("the console's answer", "path", r.URL.Path, "error", err)
				http.Error(w, `{"error":"internal error; the server's log says more"}`, http.StatusInternalServerError)
				return
			}
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_, _ = w.Write(body) // an error means that the client went away
	})
}

// marshal returns v as JSON. Texts keep their <, > and &, which would become six bytes each.
func marshal(v any) (encoded, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return out.Bytes(), err
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

func statusOf(err error) int {
	if f, ok := errors.AsType[failure](err); ok {
		return f.status
	}
	switch status.Convert(err).Message() {
	case rpctypes.ErrorDesc(rpctypes.ErrGRPCUserEmpty), rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthOldRevision),
		rpctypes.ErrorDesc(rpctypes.ErrGRPCAuthFailed):
		return http.StatusUnauthorized // to log in helps
	}
	switch code := status.Code(err); code {
	case codes.Canceled:
		return http.StatusServiceUnavailable
	case codes.Unimplemented:
		return http.StatusInternalServerError
	default:
		return runtime.HTTPStatusFromCode(code)
	}
}

// textOf is what etcd says.
func textOf(err error) string { return status.Convert(err).Message() }
