package server

import (
	"context"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3lock/v3lockpb"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/server/tlsfiles/tlstest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// cheap makes passwords cheap to check.
func cheap(c *Config) { c.BcryptCost = 4 }

// addUsers makes root, and ann, who may read and write what begins with a/.
func addUsers(t *testing.T, c clientv3.Auth) {
	t.Helper()
	ctx := testContext(t)
	do := func(_ any, err error) { t.Helper(); require.NoError(t, err) }
	do(c.UserAdd(ctx, "root", "rootpw"))
	do(c.UserGrantRole(ctx, "root", "root"))
	do(c.RoleAdd(ctx, "a"))
	do(c.RoleGrantPermission(ctx, "a", "a/", "a0", clientv3.PermissionType(clientv3.PermReadWrite)))
	do(c.UserAdd(ctx, "ann", "annpw"))
	do(c.UserGrantRole(ctx, "ann", "a"))
	do(c.AuthEnable(ctx))
}

func clientOf(t *testing.T, s *Server, user, password string) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs(), Username: user, Password: password,
		Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return c
}

// tokenFor returns a token, and a context that brings it.
func tokenFor(t *testing.T, conn *grpc.ClientConn, user, password string) (string, context.Context) {
	t.Helper()
	resp, err := pb.NewAuthClient(conn).Authenticate(testContext(t),
		&pb.AuthenticateRequest{Name: user, Password: password})
	require.NoError(t, err)
	require.NotZero(t, resp.Header.Revision)
	return resp.Token, metadata.AppendToOutgoingContext(testContext(t), rpctypes.TokenFieldNameGRPC, resp.Token)
}

func requireMessage(t *testing.T, want, err error) {
	t.Helper()
	require.Error(t, err)
	require.Equal(t, status.Convert(want).Message(), status.Convert(err).Message())
	require.Equal(t, status.Code(want), status.Code(err))
}

func TestInvalidTokenOptionsAreRefused(t *testing.T) {
	for options, why := range map[string]string{
		"jwt": "invalid auth signature method", "jwt,sign-method=HS256": "missing key data",
		"jwt,sign-method=HS256,priv-key=/does/not/exist": "no such file", "other": "invalid auth options",
	} {
		requireRefused(t, why, func(c *Config) { c.AuthToken = options })
	}
}

func TestTheNameInACertificate(t *testing.T) {
	ca, d := tlstest.NewServer(t)
	d.RequireClients(t, ca)
	s := startReplica(t, cheap, func(c *Config) { c.ListenClientURLs, c.TLS = []string{loopbackTLS, loopback}, d.Config })
	plain, err := clientv3.New(clientv3.Config{Endpoints: s.ClientURLs()[1:], Logger: zap.NewNop()})
	require.NoError(t, err)
	defer func() { require.NoError(t, plain.Close()) }()
	addUsers(t, plain)

	conf := ca.ClientNamed(t, "ann")
	conn := dialTLS(t, s, conf)
	kv, ctx := pb.NewKVClient(conn), testContext(t)
	_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte("a/1")})
	require.NoError(t, err)
	_, err = kv.Put(ctx, &pb.PutRequest{Key: []byte("b")})
	requireMessage(t, rpctypes.ErrGRPCPermissionDenied, err)
	_, rootCtx := tokenFor(t, conn, "root", "rootpw")
	_, err = kv.Put(rootCtx, &pb.PutRequest{Key: []byte("b")})
	require.NoError(t, err, "a token counts more")
	_, err = kv.Put(metadata.AppendToOutgoingContext(ctx, "token", "x.1"), &pb.PutRequest{Key: []byte("a/1")})
	requireMessage(t, rpctypes.ErrGRPCInvalidAuthToken, err)
	_, err = kv.Put(metadata.AppendToOutgoingContext(ctx, "grpcgateway-accept", "x"), &pb.PutRequest{Key: []byte("a/1")})
	requireMessage(t, rpctypes.ErrGRPCUserEmpty, err)

	// The server asks for the caller.
	lock := v3lockpb.NewLockClient(conn)
	locked, err := lock.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("a/lock")})
	require.NoError(t, err)
	_, err = lock.Unlock(ctx, &v3lockpb.UnlockRequest{Key: locked.Key})
	require.NoError(t, err)
	_, err = lock.Lock(ctx, &v3lockpb.LockRequest{Name: []byte("b/lock")})
	require.ErrorContains(t, err, "permission denied")

	// The gateway does not see the client's certificate: it refuses those with a name, and others have no user.
	for want, c := range map[string]*tls.Config{
		"CommonName of client sending a request against gateway": conf,
		"user name is empty": ca.ClientNamed(t, ""),
	} {
		for _, prefix := range []string{"/v3/", "/v3beta/"} {
			tr := &http.Transport{TLSClientConfig: c}
			code, body := callURL(t, &http.Client{Transport: tr}, http.MethodPost, s.ClientURLs()[0]+prefix+"kv/put",
				`{"key":"YS8x"}`)
			tr.CloseIdleConnections()
			require.Equal(t, 400, code)
			require.Contains(t, body, want)
		}
	}
}

// What members and the server itself say of callers is not taken from clients.
func TestClientsCannotClaimAnIdentity(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	forged := []string{"sqlbrain-user-bin", "root", "sqlbrain-auth-revision", "99", "sqlbrain-common-name-bin", "root"}
	ctx := metadata.AppendToOutgoingContext(testContext(t), forged...)
	conn := dial(t, s)
	_, err := pb.NewKVClient(conn).Range(ctx, &pb.RangeRequest{Key: []byte("b")})
	requireMessage(t, rpctypes.ErrGRPCUserEmpty, err)
	_, err = v3lockpb.NewLockClient(conn).Lock(ctx, &v3lockpb.LockRequest{Name: []byte("b")})
	require.ErrorContains(t, err, "user name is empty")

	post := func(path, body, token string) string {
		var header []string
		if token != "" {
			header = []string{"Authorization", token}
		}
		for i := 0; i < len(forged); i += 2 {
			value := forged[i+1]
			if strings.HasSuffix(forged[i], "-bin") {
				value = base64.StdEncoding.EncodeToString([]byte(value))
			}
			header = append(header, "Grpc-Metadata-"+forged[i], value)
		}
		_, answer := call(t, s, http.MethodPost, path, body, header...)
		return answer
	}
	require.Contains(t, post("/v3/kv/range", `{"key":"Yg=="}`, ""), "user name is empty")
	var given struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(post("/v3/auth/authenticate", `{"name":"root","password":"rootpw"}`, "")),
		&given))
	require.Contains(t, post("/v3/kv/range", `{"key":"Yg=="}`, given.Token), "header")
	require.Contains(t, post("/v3/lock/lock", `{"name":"Yg=="}`, given.Token), "key")
}

// TestPermissionIsCheckedBeforePasswordsAreHashed relies on bcrypt, which refuses long passwords.
func TestPermissionIsCheckedBeforePasswordsAreHashed(t *testing.T) {
	s := startReplica(t, cheap)
	addUsers(t, newClient(t, s))
	conn := dial(t, s)
	_, ann := tokenFor(t, conn, "ann", "annpw")
	long := strings.Repeat("p", 100)
	for _, c := range []struct {
		ctx  context.Context
		want error
	}{{ann, rpctypes.ErrGRPCPermissionDenied}, {testContext(t), rpctypes.ErrGRPCUserEmpty}} {
		_, err := pb.NewAuthClient(conn).UserAdd(c.ctx, &pb.AuthUserAddRequest{Name: "x", Password: long})
		requireMessage(t, c.want, err)
		_, err = pb.NewAuthClient(conn).UserChangePassword(c.ctx,
			&pb.AuthUserChangePasswordRequest{Name: "ann", Password: long})
		requireMessage(t, c.want, err)
	}
}

// Calls of the gateway and the console come from this process: what delays failed logins must go
// by the address that they were called from, and believe nothing that the caller says of it.
func TestFailedLoginsOverHTTPCountForTheClientsAddress(t *testing.T) {
	var log eventually.Log
	s := startReplica(t, cheap, func(c *Config) {
		c.Logger, c.Console = slog.New(slog.NewTextHandler(&log, nil)), true
	})
	addUsers(t, newClient(t, s))
	for i, path := range []string{"/v3/auth/authenticate", "/ui/api/login"} {
		call(t, s, http.MethodPost, path, `{"name":"ann","password":"wrong"}`, "Content-Type", "application/json",
			"X-Forwarded-For", "198.51.100.1", "Grpc-Metadata-X-Forwarded-For", "198.51.100.2")
		require.Equal(t, i+1, strings.Count(log.String(), "source=127.0.0.1"), path)
	}
	require.NotContains(t, log.String(), "198.51.100")
}

// Users are refused before any of their passwords is hashed or row written.
func TestNamesThatDoNotFitAreRefused(t *testing.T) {
	s := startReplica(t, cheap)
	c, ctx := newClient(t, s), testContext(t)
	long := strings.Repeat("n", 4000)
	for i, call := range []func() error{
		func() error { _, err := c.UserAdd(ctx, long, "p"); return err },
		func() error { _, err := c.RoleAdd(ctx, long); return err },
	} {
		require.Equal(t, codes.InvalidArgument, status.Code(call()), fmt.Sprint(i))
	}
}
