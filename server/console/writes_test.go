package console

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
)

// switchedAuth is authentication that the body of a request turns off.
type switchedAuth struct {
	pb.AuthClient
	io.Reader
	enabled bool
}

func (s *switchedAuth) AuthStatus(context.Context, *pb.AuthStatusRequest,
	...grpc.CallOption) (*pb.AuthStatusResponse, error) {
	return &pb.AuthStatusResponse{Enabled: s.enabled}, nil
}

func (s *switchedAuth) Read(p []byte) (int, error) {
	s.enabled = false
	return s.Reader.Read(p)
}

// TestHeldBackBodyDoesNotWrite: the client sends it after authentication was turned off.
func TestHeldBackBodyDoesNotWrite(t *testing.T) {
	h := testHandler(func(*Config) {})
	auth := &switchedAuth{Reader: strings.NewReader(`{"key":"YQ==","value":"YQ==","mod_revision":0}`), enabled: true}
	h.auth = auth
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path+"api/put", auth)
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "read-only")
}
